#include "cli/analysis_command.h"

#include <chrono>
#include <map>

#include "cli/logging.h"
#include "cli/output_folder.h"

namespace qkscope::cli {

void AnalysisCommand::add_input_options(CLI::App& command) {
  command
      .add_option("data_root", options_.data_root,
                  "A capture: a folder of l{LL}h{HH}{q|k}, or REPO@BRANCH on the Hugging Face Hub")
      ->required();
  command.add_option("--out", out_, "Folder for the results (made if missing)")->required();
  capture_.add_to(command, options_);
  command
      .add_option("--max-tokens", options_.max_tokens,
                  "Use a seeded sample of at most N rows per file (default: all rows)")
      ->check(CLI::PositiveNumber);
  command.add_option("--seed", options_.seed, "Seed of every sample drawn");
  command
      .add_option("--scatter", options_.scatter,
                  "Rows per head and side kept for pictures in head_scatter.parquet (0: none)")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  common_.add_to(command);
}

void AnalysisCommand::add_pca_options(CLI::App& command) {
  command.add_option("--components", options_.pca_options.components, "Components per head")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--high", options_.taxonomy.high, "A correlation above this is high")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command.add_option("--low", options_.taxonomy.low, "A correlation below this is low")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
}

void AnalysisCommand::add_rotation_options(CLI::App& command) {
  using Separation = RotationOptions::Separation;
  static const std::map<std::string, Separation> kNames = {{"mean", Separation::mean},
                                                           {"eigen", Separation::eigen}};
  auto& rotation = options_.rotation_options;
  command
      .add_option("--separation", rotation.separation,
                  "b from the difference of means, or the top eigenvector of differences")
      ->transform(CLI::CheckedTransformer(kNames));
  command.add_option("--pairs", rotation.pairs, "Planes of the complement")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--active", rotation.active_angle_r, "A plane turns with position above this")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      .add_option("--max-omega", rotation.max_omega,
                  "Highest frequency searched where RoPE frequencies are unknown (rad/token)")
      ->check(CLI::Range(1e-6, 3.14159))
      ->capture_default_str();
}

void AnalysisCommand::add_plasticity_options(CLI::App& command) {
  using Kind = PlasticityOptions::QueryModelKind;
  static const std::map<std::string, Kind> kNames = {{"bucket", Kind::bucket},
                                                     {"linear", Kind::linear}};
  auto& plasticity = options_.plasticity_options;
  command
      .add_option("--query-model", plasticity.profile_model,
                  "Queries of the profile: each bucket's own, or the linear drift")
      ->transform(CLI::CheckedTransformer(kNames));
  command
      .add_option("--max-pairs", plasticity.max_pairs,
                  "Pairs per cell up to which averages are exact")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--p-alpha", plasticity.p_alpha, "Level of the normality tests")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command.add_option("--heatmap-bins", plasticity.heatmap_bins, "Bins per axis of the heatmap")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

void AnalysisCommand::run() {
  const auto started = std::chrono::steady_clock::now();
  common_.apply();
  capture_.apply(options_);
  check_output_folder(out_);
  options_.quiet = common_.quiet;
  const AnalysisRun run = analyze_capture(options_);
  write_results(out_, run, options_);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
  info("{} heads in {:.1f} s; results in {}", run.heads.size(), taken.count(), out_);
  report_failed_heads(run, out_);
}

}  // namespace qkscope::cli
