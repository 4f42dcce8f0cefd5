// qkscope stats: accumulates statistics over every token of every head during the forward pass.
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/numbers.h"
#include "cli/run_options.h"
#include "cli/stop_signal.h"
#include "qkscope/experimental/text.h"
#include "qkscope/forward.h"
#include "qkscope/statistics.h"

namespace qkscope::cli {
namespace {

struct StatsArguments : RunArguments {
  std::string groups;
  double min_match = 0;
  std::int64_t exact_rows = 0;
};

void print_cost(const char* group, double flop, double forward) {
  if (flop > 0)
    fmt::print("  group {}  {:.3g} FLOP, {:.2g} % of the pass\n", group, flop,
               100.0 * flop / forward);
}

void print_plan(const StatsPlan& plan, const StatsDryRun& dry) {
  const auto& model = plan.model();
  fmt::print("model      {} ({}, {} layers, {} query and {} key heads of dimension {})\n",
             plan.config().run.model.name, model.family, model.n_layers, model.n_heads,
             model.n_kv_heads, model.d_head);
  fmt::print("device     {}, {}\n", format_devices(plan.device(), plan.workers()),
             dtype_name(plan.dtype()));
  fmt::print("examples   {}, {} tokens, {}\n", format_number(dry.examples),
             format_number(dry.tokens),
             format_cuts(plan.config().run.tokenizer, dry.truncated, dry.dropped_chunks));
  if (dry.trials > 0) fmt::print("retrieval  {} trials\n", format_number(dry.trials));
  fmt::print("work       {:.3g} FLOP in the forward pass\n", dry.forward_flop);
  print_cost("A", dry.moments_flop, dry.forward_flop);
  print_cost("B", dry.near_flop, dry.forward_flop);
  print_cost("C", dry.all_flop, dry.forward_flop);
  fmt::print("memory     {} of sums on the host", format_size(dry.state_bytes));
  if (dry.device_bytes > 0)
    fmt::print(", {} more on the device than without statistics", format_size(dry.device_bytes));
  fmt::print("\noutput     {}\n", plan.config().run.output.data_root);
}

void print_result(const StatsResult& result, const StatsPlan& plan, const StatsArguments& options) {
  const auto& root = plan.config().run.output.data_root;
  using Outcome = CaptureResult::Outcome;
  switch (result.outcome) {
    case Outcome::finished:
      fmt::print("statistics of {} documents, {} tokens in {}\n", format_number(result.examples),
                 format_number(result.tokens), root);
      break;
    case Outcome::already_finished:
      fmt::print("{}: these statistics are finished; nothing to do\n", root);
      break;
    case Outcome::part_finished:
      fmt::print("shard {}: {} documents; when all shards are done: qkscope merge {}\n",
                 options.shard, format_number(result.examples), root);
      break;
    case Outcome::interrupted:
      fmt::print("stopped after {} documents, all kept; run the same command to continue\n",
                 format_number(result.examples));
      break;
  }
}

void collect_statistics(const StatsPlan& plan, const StatsArguments& options, const Shard& shard) {
  const auto result = run_stats(plan, {.shard = shard,
                                       .overwrite = options.overwrite,
                                       .quiet = options.common.quiet,
                                       .stop = &watch_stop_signals()});
  if (options.json) fmt::print("{}\n", result_json(result));
  if (options.prints_text()) print_result(result, plan, options);
  if (result.outcome == CaptureResult::Outcome::interrupted) end_by_stop_signal();
}

StatsConfig read_configuration(const StatsArguments& options) {
  auto overrides = options.overrides;
  if (!options.groups.empty()) overrides.push_back("stats.groups=[" + options.groups + "]");
  if (options.min_match > 0)
    overrides.push_back(fmt::format("stats.min_match={}", options.min_match));
  if (options.exact_rows > 0)
    overrides.push_back(fmt::format("stats.exact_rows={}", options.exact_rows));
  auto config = read_stats_config(options.config, overrides);
  options.apply_to(config.run.dataset);
  return config;
}

// Prints what --dry-run reports: the plan, the estimated run time and the warnings. Statistics use
// every token, so no warning about too few sampled rows is needed.
void print_dry_run(const StatsPlan& plan, const StatsArguments& options, const Shard& shard) {
  const auto dry = dry_run_stats(plan, shard);
  const auto advice = make_run_advice(plan, dry, options.compute.options());
  if (options.json) {
    fmt::print("{}\n", add_advice_to_plan_json(plan_json(plan, dry), advice));
    return;
  }
  print_plan(plan, dry);
  print_advice(advice);
}

void run(const StatsArguments& options) {
  options.common.apply();
  const auto config = read_configuration(options);
  const auto shard = options.chosen_shard();
  fetch_capture_inputs(config.run, {.weights = !options.dry_run, .quiet = options.common.quiet});
  const auto plan = make_stats_plan(config, options.compute.options());
  if (!options.dry_run) return collect_statistics(plan, options, shard);
  print_dry_run(plan, options, shard);
}

}  // namespace

void add_stats(CLI::App& app) {
  auto options = std::make_shared<StatsArguments>();
  auto& command =
      *app.add_subcommand("stats", "Accumulate statistics over every token of every head");
  options->add_to(command);
  start_section(command, "Statistics");
  command.add_option(
      "--groups", options->groups,
      "A (moments of q, k and v), B (attention to near keys), C (to all keys, includes "
      "B); as A,B (default: the file's, or A)");
  command
      .add_option("--min-match", options->min_match,
                  "Retrieval: least fraction of correct greedy tokens of a trial that counts "
                  "(default: the file's, or 0.5)")
      ->check(number_between(0.0, 1.0));
  command
      .add_option("--exact-rows", options->exact_rows,
                  "Group C: number of evenly spaced rows per document that are sorted, for exact "
                  "counts of the keys that hold 90 % of the mass (default: the file's, or none)")
      ->check(positive());
  command.callback([options] { run(*options); });
}

}  // namespace qkscope::cli
