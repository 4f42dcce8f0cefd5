// qkscope capture, and sniff-qk: store the query and key vectors of sampled heads and positions.
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
#include "cli/shard.h"
#include "cli/stop_signal.h"
#include "qkscope/forward.h"
#include "qkscope/hub.h"
#include "qkscope/log.h"
#include "qkscope/tensor.h"
#include "qkscope/text.h"

namespace qkscope::cli {
namespace {

struct CaptureArguments {
  CommonOptions common;
  std::string config;
  std::vector<std::string> overrides;
  std::string device;
  std::string dtype;
  std::string device_memory;
  std::string shard;
  std::string ids;
  std::string non_finite;
  std::int64_t batch_tokens = 0;
  std::int64_t limit = 0;
  bool resume = false;  // what happens anyway
  bool overwrite = false;
  bool dry_run = false;
  bool no_publish = false;
  bool deterministic = false;
  bool json = false;

  // With --json the object is all that goes to standard output.
  bool talks() const { return !common.quiet && !json; }
};

void print_memory(const CapturePlan& plan, const DryRun& dry) {
  const bool cpu = plan.device().kind == Device::Kind::cpu;
  const auto weights = cpu                       ? "weights (mapped)"
                       : plan.memory().streams() ? "weights at a time (they stream)"
                                                 : "weights";
  fmt::print("memory     {} {} + {} activations of {} tokens{}\n", bytes(dry.weight_bytes), weights,
             bytes(dry.activation_bytes), number(dry.largest_batch),
             plan.memory().available > 0
                 ? fmt::format("; {} may be taken", bytes(plan.memory().available))
                 : "");
}

void print_plan(const CapturePlan& plan, const DryRun& dry) {
  fmt::print("model      {} ({}, {} layers, {} query and {} key heads of dimension {})\n",
             plan.config().model.name, plan.model().family, plan.model().n_layers,
             plan.model().n_heads, plan.model().n_kv_heads, plan.model().d_head);
  fmt::print("device     {}, {}\n", device_name(plan.device()), dtype_name(plan.dtype()));
  fmt::print("layers     {} eligible{}\n", plan.eligible_layers().size(),
             plan.excluded_layers().empty() ? ""
                                            : fmt::format(", excluded as sliding: {}",
                                                          fmt::join(plan.excluded_layers(), " ")));
  for (const auto& group : plan.heads())
    fmt::print("  layer {:>3} {}  {}\n", group.layer, static_cast<char>(group.kind),
               fmt::join(group.heads, " "));
  fmt::print("examples   {}, {} tokens, {} cut at {}\n", number(dry.examples), number(dry.tokens),
             number(dry.truncated), number(plan.config().tokenizer.max_length));
  fmt::print("output     {} rows in {} files, {} before compression, in {}\n", number(dry.rows),
             number(dry.files), bytes(dry.bytes), plan.config().output.data_root);
  print_memory(plan, dry);
}

void warn_of_non_finite(const CaptureResult& result) {
  if (result.non_finite > 0)
    warn("{} of {} rows hold NaN or infinity", number(result.non_finite), number(result.rows));
}

void print_result(const CaptureResult& result, const CapturePlan& plan,
                  const CaptureArguments& options) {
  const auto& root = plan.config().output.data_root;
  using Outcome = CaptureResult::Outcome;
  switch (result.outcome) {
    case Outcome::finished:
      fmt::print("{} examples, {} tokens, {} rows in {}\n", number(result.examples),
                 number(result.tokens), number(result.rows), root);
      break;
    case Outcome::already_finished:
      fmt::print("{}: this capture is finished; nothing to do\n", root);
      break;
    case Outcome::part_finished:
      fmt::print("shard {}: {} examples, {} rows; when all shards are done: qkscope merge {}\n",
                 options.shard, number(result.examples), number(result.rows), root);
      break;
    case Outcome::interrupted:
      fmt::print("stopped after {} examples, all kept; run the same command to continue\n",
                 number(result.examples));
      break;
  }
}

// A trial with --limit must not take the place of a whole capture.
void publish(const OutputConfig& output, const CaptureArguments& options) {
  if (!output.hf_repo_id || options.no_publish) return;
  if (options.limit == 0)
    publish_finished(output.data_root, {.repo = *output.hf_repo_id,
                                        .branch = output.hf_branch.value_or(""),
                                        .private_repo = output.private_repo,
                                        .quiet = !options.talks()});
  else if (options.talks())
    fmt::print("not published: captured with --limit; 'qkscope publish {}' does it all the same\n",
               output.data_root);
}

void capture(const CapturePlan& plan, const CaptureArguments& options, const Shard& shard) {
  const auto result = run_capture(plan, {.shard = shard,
                                         .overwrite = options.overwrite,
                                         .quiet = options.common.quiet,
                                         .stop = &watch_stop_signals()});
  if (options.json) fmt::print("{}\n", result_json(result));
  if (options.talks()) print_result(result, plan, options);
  warn_of_non_finite(result);
  if (result.outcome == CaptureResult::Outcome::finished ||
      result.outcome == CaptureResult::Outcome::already_finished)
    publish(plan.config().output, options);
  if (result.outcome == CaptureResult::Outcome::interrupted) end_by_stop_signal();
}

ComputeOptions compute_options(const CaptureArguments& options) {
  ComputeOptions compute{.device = options.device,
                         .dtype = {},
                         .device_memory = 0,
                         .batch_tokens = options.batch_tokens,
                         .deterministic = options.deterministic};
  if (!options.dtype.empty()) compute.dtype = parse_compute_dtype(options.dtype, "--dtype");
  if (!options.device_memory.empty())
    compute.device_memory = parse_bytes(options.device_memory, "--device-memory");
  return compute;
}

void run(const CaptureArguments& options) {
  options.common.apply();
  if (options.resume && options.overwrite) bad_input("--resume and --overwrite exclude each other");
  auto config = read_capture_config(options.config, options.overrides);
  if (options.limit > 0)
    config.dataset.max_samples =
        std::min(options.limit, config.dataset.max_samples.value_or(options.limit));
  if (!options.ids.empty()) config.dataset.number_rows = options.ids == "row";
  if (!options.non_finite.empty()) config.capture.keep_non_finite = options.non_finite == "keep";
  Shard shard;
  if (!options.shard.empty()) std::tie(shard.index, shard.count) = parse_shard(options.shard);
  fetch_capture_inputs(config, {.weights = !options.dry_run, .quiet = options.common.quiet});
  const auto plan = make_plan(config, compute_options(options));
  if (!options.dry_run) return capture(plan, options, shard);
  const auto dry = dry_run(plan, shard);
  if (options.json)
    fmt::print("{}\n", plan_json(plan, dry));
  else
    print_plan(plan, dry);
}

}  // namespace

void set_up_capture(CLI::App& command) {
  auto options = std::make_shared<CaptureArguments>();
  command.add_option("--config", options->config, "The run's configuration (YAML)")->required();
  command
      .add_option("--set", options->overrides,
                  "Override a field: capture.min_bucket_size=256; repeatable")
      ->allow_extra_args(false);
  command.add_option("--device", options->device,
                     "auto, cpu, cuda or cuda:N (default: the file's)");
  command.add_option("--dtype", options->dtype,
                     "On CUDA: float32, float16 or bfloat16 (default: the file's)");
  command.add_option("--device-memory", options->device_memory,
                     "The most to take of a GPU's memory, as in 8GiB (default: what is free); "
                     "weights that do not fit stream");
  command
      .add_option("--batch-tokens", options->batch_tokens,
                  "On CUDA: consecutive texts run together up to this many tokens, and at least "
                  "inference.batch_size of them (default: 32768, 65536 where weights stream)")
      ->check(CLI::PositiveNumber);
  command.add_flag("--deterministic", options->deterministic,
                   "On CUDA: every text runs alone, so that its vectors do not depend on what runs "
                   "beside it; on the CPU they never do");
  command.add_option("--limit", options->limit, "Capture only the first N examples")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--ids", options->ids,
                  "What tells examples apart: column (dataset.id_column) or row (their number)")
      ->check(CLI::IsMember({"column", "row"}));
  command
      .add_option("--non-finite", options->non_finite,
                  "A vector with NaN or infinity: refuse (ends the run, the default) or keep (is "
                  "stored and counted)")
      ->check(CLI::IsMember({"refuse", "keep"}));
  command.add_option(
      "--shard", options->shard,
      "i/n: capture every n-th example, from the i-th (0 to n-1); see qkscope merge");
  command.add_flag("--resume", options->resume, "Continue an interrupted run (the default)");
  command.add_flag("--overwrite", options->overwrite, "Start again, replacing what is there");
  command.add_flag("--dry-run", options->dry_run, "Print the plan and write nothing");
  command.add_flag("--no-publish", options->no_publish,
                   "Do not publish, whatever output.hf_repo_id says");
  command.add_flag("--json", options->json, "Print the plan or the result as one JSON object");
  options->common.add_to(command);
  command.callback([options] { run(*options); });
}

void add_capture(CLI::App& app) {
  set_up_capture(*app.add_subcommand(
      "capture", "Store query and key vectors of sampled heads and positions (also: sniff-qk)"));
}

}  // namespace qkscope::cli
