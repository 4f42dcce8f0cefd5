#include "cli/analysis_command.h"

#include <chrono>
#include <map>

#include <malloc.h>

#include "cli/error.h"
#include "cli/head_list.h"
#include "cli/logging.h"
#include "cli/output_folder.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

// Heads take and free the same large blocks one after the other. What is freed stays with the
// process, so that pages need not be made anew for every head: 3 % of the processor time.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the highest there is
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
}

}  // namespace

void AnalysisCommand::add_input_options(CLI::App& command) {
  command
      .add_option("data_root", options_.data_root,
                  "A capture: a folder of l{LL}h{HH}{q|k}, REPO@BRANCH on the Hugging Face Hub, or "
                  "an address (s3://bucket/path); or statistics, likewise")
      ->required();
  command.add_option("--out", out_, "Folder or address for the results (made if missing)")
      ->required();
  capture_.add_to(command, options_);
  command
      .add_option("--max-tokens", options_.max_tokens,
                  "Use a seeded sample of at most N rows per file (default: all rows)")
      ->check(positive());
  command.add_option("--seed", options_.seed, "Seed of every sample drawn");
  command.add_option("--layers", layers_, "Only these layers: 0,4-7 (default: all)");
  command.add_option("--heads", heads_,
                     "Only these query heads, LAYER.HEAD: 3.5,3.6 (default: all)");
  command.add_flag("--no-errors", no_errors_,
                   "Leave out the errors of the means over heads, a jackknife over texts");
  command
      .add_option("--scatter", options_.scatter,
                  "Rows per head and side kept for pictures in head_scatter.parquet (0: none)")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  common_.add_to(command);
}

void AnalysisCommand::add_statistics_options(CLI::App& command) {
  static const std::map<std::string, bool> kStages = {{"post", false}, {"pre", true}};
  command
      .add_option("--stage", options_.pre_rope,
                  "Of statistics: vectors before RoPE (pre), or what enters the dot product (post, "
                  "the default)")
      ->transform(CLI::CheckedTransformer(kStages));
  command.add_option(
      "--keys", options_.keys,
      "Of statistics: a capture of the same run, whose keys the plasticity compares");
}

void AnalysisCommand::add_planes_option(CLI::App& command) {
  command.add_option("--planes-of", planes_of_,
                     "LAYER.HEAD,...: keep the rows of these heads on every plane of the "
                     "complement, for the figure head_planes");
}

void AnalysisCommand::add_pca_options(CLI::App& command) {
  command.add_option("--components", options_.pca_options.components, "Components per head")
      ->check(positive())
      ->capture_default_str();
  command
      .add_option("--separate-pca", options_.pca_options.separate_components,
                  "Components of queries alone and of keys alone in correlations.csv (0: none)")
      ->check(CLI::Range(0, 1 << 20))
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
  static const std::map<std::string, Separation> kNames = {
      {"mean", Separation::mean},
      {"eigen", Separation::eigen},
      {"eigen-then-project", Separation::eigen_then_project}};
  auto& rotation = options_.rotation_options;
  command
      .add_option("--separation", rotation.separation,
                  "b from the difference of means, or the top eigenvector of differences with a "
                  "projected out before (eigen) or after")
      ->transform(CLI::CheckedTransformer(kNames));
  command
      .add_option("--null-draws", rotation.null_draws,
                  "Shuffles of the positions that correlations along a stand beside (0: none)")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command.add_option("--pairs", rotation.pairs, "Planes of the complement")
      ->check(positive())
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
  static const std::map<std::string, Kind> kNames = {{"local", Kind::local},
                                                     {"bin", Kind::bin},
                                                     {"bucket", Kind::bucket},
                                                     {"linear", Kind::linear}};
  using Covariance = PlasticityOptions::Covariance;
  static const std::map<std::string, Covariance> kCovariances = {{"diagonal", Covariance::diagonal},
                                                                 {"full", Covariance::full}};
  using Fifths = PlasticityOptions::Fifths;
  static const std::map<std::string, Fifths> kFifths = {{"range", Fifths::range},
                                                        {"context", Fifths::context}};
  auto& plasticity = options_.plasticity_options;
  command
      .add_option("--query-model", plasticity.profile_model,
                  "Model of the queries in a bin of the profile: local regression on position, the "
                  "bin's or the bucket's own queries, or one line (default: local)")
      ->transform(CLI::CheckedTransformer(kNames));
  command
      .add_option("--covariance", plasticity.covariance,
                  "Residual covariance of the queries: its diagonal, or the full matrix, shrunk "
                  "(default: diagonal)")
      ->transform(CLI::CheckedTransformer(kCovariances));
  command
      .add_option("--free-keys", plasticity.free_keys,
                  "Keys per bin up to which the model-free plasticity is exact")
      ->check(positive())
      ->capture_default_str();
  command
      .add_option("--max-pairs", plasticity.max_pairs,
                  "Pairs per cell up to which averages are exact")
      ->check(positive())
      ->capture_default_str();
  command.add_option("--p-alpha", plasticity.p_alpha, "Level of the normality tests")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      .add_option("--profile-bins", profile_bins_,
                  "Bins of the profile over the context: a number, or 'buckets' for those of the "
                  "capture (default: about 50 queries of a head in each)")
      ->type_name("N|buckets");
  command
      .add_option("--fifths", plasticity.fifths,
                  "Fifths and tenths of the positions that have values, or of the whole context")
      ->transform(CLI::CheckedTransformer(kFifths));
  command
      .add_option("--length-bins", plasticity.length_bins,
                  "Edges of the length bins in tokens (default: 0,1024,2048,4096 and so on)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("EDGES");
  command.add_option("--heatmap-bins", plasticity.heatmap_bins, "Bins per axis of the heatmap")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

void AnalysisCommand::read_profile_bins() {
  auto& bins = options_.plasticity_options.profile_bins;
  if (profile_bins_.empty()) return;
  if (profile_bins_ == "buckets") {
    bins = PlasticityOptions::kBuckets;
    return;
  }
  const auto number = parse_integer(profile_bins_, "--profile-bins");
  if (number < 1 || number > PlasticityOptions::kMostBins)
    bad_input("--profile-bins {}: expected 1 to {}, or buckets", profile_bins_,
              PlasticityOptions::kMostBins);
  bins = static_cast<int>(number);
}

void AnalysisCommand::run() {
  const auto started = std::chrono::steady_clock::now();
  keep_freed_memory();
  common_.apply();
  capture_.apply(options_);
  if (!layers_.empty()) options_.layers = parse_layers(layers_);
  if (!heads_.empty()) options_.heads = parse_heads(heads_, "--heads");
  if (no_errors_) options_.errors = false;
  read_profile_bins();
  if (!planes_of_.empty()) options_.planes_of = parse_heads(planes_of_, "--planes-of");
  check_output_folder(out_);
  options_.quiet = common_.quiet;
  const AnalysisRun run = analyze_capture(options_);
  write_results(out_, run, options_);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
  info("{} heads in {:.1f} s; results in {}", run.heads.size(), taken.count(), out_);
  report_failed_heads(run, out_);
}

}  // namespace qkscope::cli
