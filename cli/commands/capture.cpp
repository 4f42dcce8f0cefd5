// qkscope capture and sniff-qk: store the query and key vectors of sampled heads and positions.
#include "qkscope/capture.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/logging.h"
#include "cli/numbers.h"
#include "cli/publishing.h"
#include "cli/run_options.h"
#include "cli/stop_signal.h"
#include "qkscope/experimental/log.h"
#include "qkscope/forward.h"
#include "qkscope/hub.h"
#include "qkscope/tensor.h"

namespace qkscope::cli {
namespace {

struct CaptureArguments : RunArguments {
  std::string non_finite;
  std::int64_t shards = 0;
  bool resume = false;  // accepted for compatibility; runs always resume
  bool no_publish = false;
};

void print_memory(const CapturePlan& plan, const DryRun& dry) {
  const bool cpu = plan.device().kind == Device::Kind::cpu;
  const auto weights = cpu                       ? "weights (mapped)"
                       : plan.memory().streams() ? "weights at a time (they stream)"
                                                 : "weights";
  fmt::print("memory     {} {} + {} activations of {} tokens{}\n", format_size(dry.weight_bytes),
             weights, format_size(dry.activation_bytes), format_number(dry.largest_batch),
             plan.memory().available > 0
                 ? fmt::format("; {} may be taken", format_size(plan.memory().available))
                 : "");
}

std::size_t count_heads(const CapturePlan& plan, HeadKind kind) {
  std::size_t count = 0;
  for (const auto& group : plan.heads()) count += group.kind == kind ? group.heads.size() : 0;
  return count;
}

void print_heads(const CapturePlan& plan) {
  for (const auto& group : plan.heads())
    fmt::print("  layer {:>3} {}  {}\n", group.layer, static_cast<char>(group.kind),
               fmt::join(group.heads, " "));
}

void print_plan(const CapturePlan& plan, const DryRun& dry, bool verbose) {
  fmt::print("model      {} ({}, {} layers, {} query and {} key heads of dimension {})\n",
             plan.config().model.name, plan.model().family, plan.model().n_layers,
             plan.model().n_heads, plan.model().n_kv_heads, plan.model().d_head);
  fmt::print("device     {}, {}\n", format_devices(plan.device(), plan.workers()),
             dtype_name(plan.dtype()));
  fmt::print("layers     {} eligible{}\n", plan.eligible_layers().size(),
             plan.excluded_layers().empty() ? ""
                                            : fmt::format(", excluded as sliding: {}",
                                                          fmt::join(plan.excluded_layers(), " ")));
  fmt::print("heads      {} query and {} key heads{}\n", count_heads(plan, HeadKind::query),
             count_heads(plan, HeadKind::key), verbose ? "" : " (-v lists them)");
  if (verbose) print_heads(plan);
  fmt::print("examples   {}, {} tokens, {}\n", format_number(dry.examples),
             format_number(dry.tokens),
             format_cuts(plan.config().tokenizer, dry.truncated, dry.dropped_chunks));
  fmt::print("work       {:.3g} FLOP in the forward passes\n", dry.flop);
  fmt::print("output     {} rows in {} files, {} before compression, in {}\n",
             format_number(dry.rows), format_number(dry.files), format_size(dry.bytes),
             plan.config().output.data_root);
  print_memory(plan, dry);
}

void warn_of_non_finite(const CaptureResult& result) {
  if (result.non_finite > 0)
    warn("{} of {} rows hold NaN or infinity", format_number(result.non_finite),
         format_number(result.rows));
}

void print_result(const CaptureResult& result, const CapturePlan& plan,
                  const CaptureArguments& options) {
  const auto& root = plan.config().output.data_root;
  using Outcome = CaptureResult::Outcome;
  switch (result.outcome) {
    case Outcome::finished:
      fmt::print("{} examples, {} tokens, {} rows in {}\n", format_number(result.examples),
                 format_number(result.tokens), format_number(result.rows), root);
      break;
    case Outcome::already_finished:
      fmt::print("{}: this capture is finished; nothing to do\n", root);
      break;
    case Outcome::part_finished:
      fmt::print("shard {}: {} examples, {} rows; when all shards are done: qkscope merge {}\n",
                 options.shard, format_number(result.examples), format_number(result.rows), root);
      break;
    case Outcome::interrupted:
      fmt::print("stopped after {} examples, all kept; run the same command to continue\n",
                 format_number(result.examples));
      break;
  }
}

// A capture with --limit is not published: it would replace a complete capture on the Hub.
void publish(const OutputConfig& output, const CaptureArguments& options) {
  if (!output.hf_repo_id || options.no_publish) return;
  if (options.limit == 0)
    publish_finished(output.data_root, {.repo = *output.hf_repo_id,
                                        .branch = output.hf_branch.value_or(""),
                                        .private_repo = output.private_repo,
                                        .quiet = !options.prints_text()});
  else if (options.prints_text())
    fmt::print(
        "not published: captured with --limit; 'qkscope hub publish {}' does it all the same\n",
        output.data_root);
}

bool is_finished(const CaptureResult& result) {
  return result.outcome == CaptureResult::Outcome::finished ||
         result.outcome == CaptureResult::Outcome::already_finished;
}

void report_result(const CaptureResult& result, const CapturePlan& plan,
                   const CaptureArguments& options) {
  if (options.json) fmt::print("{}\n", result_json(result));
  if (options.prints_text()) print_result(result, plan, options);
  warn_of_non_finite(result);
  if (is_finished(result)) publish(plan.config().output, options);
  if (result.outcome == CaptureResult::Outcome::interrupted) end_by_stop_signal();
}

CaptureResult capture(const CapturePlan& plan, const CaptureArguments& options,
                      const Shard& shard) {
  const CaptureOptions run{.shard = shard,
                           .overwrite = options.overwrite,
                           .quiet = options.common.quiet,
                           .stop = &watch_stop_signals()};
  return options.shards > 0 ? run_capture_shards(plan, options.shards, run)
                            : run_capture(plan, run);
}

// Prints what --dry-run reports: the plan, the estimated run time and the warnings.
void print_dry_run(const CapturePlan& plan, const CaptureArguments& options, const Shard& shard) {
  const auto dry = dry_run(plan, shard);
  const auto advice = make_run_advice(plan, dry, shard, options.compute.options());
  if (options.json) {
    fmt::print("{}\n", add_advice_to_plan_json(plan_json(plan, dry), advice));
    return;
  }
  print_plan(plan, dry, options.common.verbose);
  print_advice(advice);
}

void run(const CaptureArguments& options) {
  options.common.apply();
  if (options.shards > 0 && !options.shard.empty())
    reject("--shards N does what is left of all shards; leave --shard out");
  if (options.resume && options.overwrite) reject("--resume and --overwrite exclude each other");
  auto config = read_capture_config(options.config, options.overrides);
  options.apply_to(config.dataset);
  if (!options.non_finite.empty()) config.capture.keep_non_finite = options.non_finite == "keep";
  const auto shard = options.chosen_shard();
  fetch_capture_inputs(config, {.weights = !options.dry_run, .quiet = options.common.quiet});
  const auto plan = make_plan(config, options.compute.options());
  if (!options.dry_run) return report_result(capture(plan, options, shard), plan, options);
  print_dry_run(plan, options, shard);
}

}  // namespace

void set_up_capture(CLI::App& command) {
  auto options = std::make_shared<CaptureArguments>();
  options->add_to(command);
  command
      .add_option("--shards", options->shards,
                  "Capture the shards that no task has finished, of N, one after another; then "
                  "merge all (default: one run without shards)")
      ->check(integer_between(1, kMostShards));
  choices(command.add_option("--non-finite", options->non_finite,
                             "Vectors with NaN or infinity: refuse (end the run) or keep (store "
                             "and count them) (default: the file's, or refuse)"),
          {"refuse", "keep"});
  command.add_flag("--resume", options->resume, "Continue an interrupted run (the default)");
  command.add_flag("--no-publish", options->no_publish,
                   "Do not publish, even if output.hf_repo_id is set");
  command.callback([options] { run(*options); });
}

void add_capture(CLI::App& app) {
  set_up_capture(*app.add_subcommand(
      "capture", "Store query and key vectors of sampled heads and positions (also: sniff-qk)"));
}

}  // namespace qkscope::cli
