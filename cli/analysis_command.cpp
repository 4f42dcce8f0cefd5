#include "cli/analysis_command.h"

#include <chrono>
#include <map>

#include "cli/error.h"
#include "cli/logging.h"
#include "cli/output_folder.h"
#include "qkscope/text.h"

namespace qkscope::cli {

void AnalysisCommand::add_input_options(CLI::App& command) {
  command.add_option("data_root", options_.data_root, "A capture: a folder of l{LL}h{HH}{q|k}")
      ->required();
  command.add_option("--out", out_, "Folder for the results (made if missing)")->required();
  command.add_option("--label", options_.label,
                     "Name in the model column (default: the capture's own)");
  command
      .add_option("--q-heads", query_heads_,
                  "Query heads per layer of the model, for captures that do not say")
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("--k-heads", key_heads_, "Key heads per layer of the model, likewise")
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option("--nope-layers", options_.nope_layers,
                  "Layers without RoPE, for captures that do not say")
      ->delimiter(',');
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

void AnalysisCommand::add_planes_option(CLI::App& command) {
  command
      .add_option("--planes-of", planes_of_,
                  "LAYER.HEAD,...: keep the rows of these heads on every plane of the complement, "
                  "for the figure head_planes")
      ->delimiter(',');
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

namespace {

// "3.11"
HeadId parse_head(const std::string& name) {
  const auto parts = split(name, '.');
  const auto number = [](const std::string& part) {
    return !part.empty() && part.size() < 7 &&
           part.find_first_not_of("0123456789") == std::string::npos;
  };
  if (parts.size() != 2 || !number(parts[0]) || !number(parts[1]))
    bad_input("--planes-of: found '{}'; expected LAYER.HEAD, such as 3.11", name);
  return {std::stoi(parts[0]), std::stoi(parts[1]), HeadKind::query};
}

}  // namespace

void AnalysisCommand::run() {
  const auto started = std::chrono::steady_clock::now();
  common_.apply();
  if ((query_heads_ > 0) != (key_heads_ > 0))
    bad_input("--q-heads and --k-heads belong together; give both");
  if (query_heads_ > 0) options_.head_counts = HeadCounts{query_heads_, key_heads_};
  for (const auto& name : planes_of_) options_.planes_of.push_back(parse_head(name));
  check_output_folder(out_);
  options_.quiet = common_.quiet;
  const AnalysisRun run = analyze_capture(options_);
  write_results(out_, run, options_);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
  info("{} heads in {:.1f} s; results in {}", run.heads.size(), taken.count(), out_);
  report_failed_heads(run, out_);
}

}  // namespace qkscope::cli
