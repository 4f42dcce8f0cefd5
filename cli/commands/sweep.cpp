// qkscope sweep: capture and analyse a list of checkpoints.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/numbers.h"
#include "cli/shard.h"
#include "cli/stop_signal.h"
#include "cli/sweep_command.h"
#include "qkscope/tensor.h"
#include "qkscope/text.h"

namespace qkscope::cli {
namespace {

struct SweepArguments {
  CommonOptions common;
  SweepSource source;
  SweepOptions sweep;
  std::string results = "results";
  std::string shard;
  std::string devices;
  std::string dtype;
  std::string device_memory;
  // What --dry-run reckons with.
  std::string speed = "400T";  // FLOP/s
  std::string bandwidth = "100MB";
  bool dry_run = false;
  bool no_figures = false;
  bool no_publish = false;
};

// As for one capture; here they hold for every run.
void add_compute_options(CLI::App& command, SweepArguments& options) {
  auto& compute = options.source.compute;
  auto* one = command.add_option("--device", compute.device,
                                 "auto, cpu, cuda or cuda:N (default: the file's)");
  command
      .add_option("--devices", options.devices,
                  "Several that share the texts of each run: all (every GPU), or cuda:0,cuda:1")
      ->excludes(one);
  command.add_option("--dtype", options.dtype,
                     "On CUDA: float32, float16 or bfloat16 (default: the file's)");
  command.add_option("--device-memory", options.device_memory,
                     "The most to take of a GPU's memory, as in 8GiB (default: what is free)");
  command
      .add_option("--batch-tokens", compute.batch_tokens,
                  "On CUDA: consecutive texts run together up to this many tokens")
      ->check(CLI::PositiveNumber);
  command.add_flag("--deterministic", compute.deterministic, "On CUDA: every text runs alone");
}

// "90G", "400T": a number with a power of 1000.
double parse_flops(const std::string& text) {
  constexpr std::string_view kPowers = "KMGTP";
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const auto power = unit.size() == 1 ? kPowers.find(unit[0]) : std::string_view::npos;
  if (power != std::string_view::npos) value *= std::pow(1000.0, static_cast<double>(power + 1));
  const bool known = unit.empty() || power != std::string_view::npos;
  if (!known || !std::isfinite(value) || value <= 0)
    bad_input("--speed: found {}, expected FLOP/s above 0 as in 90G or 400T", text);
  return value;
}

std::string publication(const PlannedRun& run) {
  if (run.publish.empty()) return "";
  return fmt::format(", {} {}", run.published ? "published to" : "to publish to", run.publish);
}

std::string planned_work(const PlannedRun& run) {
  std::vector<std::string> parts;
  if (run.capture)
    parts.push_back(fmt::format("to capture: {} examples, {} tokens; {} rows in {} files, {}",
                                number(run.capture->examples), number(run.capture->tokens),
                                number(run.capture->rows), number(run.capture->files),
                                bytes(run.capture->bytes)));
  if (run.statistics && run.statistics->beside)
    parts.emplace_back("statistics from the same passes");
  else if (run.statistics)
    parts.push_back(fmt::format("statistics to make: {} examples, {} tokens",
                                number(run.statistics->examples), number(run.statistics->tokens)));
  if (run.weights > 0)
    parts.push_back(fmt::format("weights {}{}", format_bytes(run.weights),
                                run.to_download > 0 ? " to download" : ""));
  return fmt::format("{}", fmt::join(parts, "; "));
}

void print_planned(const PlannedRun& run) {
  if (!run.error.empty()) {
    fmt::print("{:<16} {}\n", run.label, run.error);
  } else if (!run.capture && !run.statistics) {
    fmt::print("{:<16} captured, {}{}\n", run.label, run.analysed ? "analysed" : "to analyse",
               publication(run));
  } else {
    fmt::print("{:<16} {}{}\n", run.label, planned_work(run), publication(run));
  }
}

// What all runs together take.
struct SweepCost {
  std::int64_t runs = 0;  // that need their checkpoint
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t bytes = 0;  // of those rows
  double flop = 0;
  std::uint64_t to_download = 0;  // bytes
  std::uint64_t disk = 0;         // bytes of weights at a time

  void add(const PlannedRun& run) {
    if (run.capture) {
      tokens += run.capture->tokens;
      rows += run.capture->rows;
      bytes += run.capture->bytes;
      flop += run.capture->flop;
    }
    if (run.statistics) {
      if (!run.statistics->beside) tokens += run.statistics->tokens;
      flop += run.statistics->flop;
    }
    runs += run.capture || run.statistics;
    to_download += run.to_download;
    disk = std::max(disk, run.weights_on_disk);
  }
};

void print_cost(const SweepCost& cost, const SweepArguments& options, const std::string& folder) {
  fmt::print("in all           {} tokens, {} rows, {} before compression, into {}\n",
             number(cost.tokens), number(cost.rows), bytes(cost.bytes), folder);
  if (cost.runs == 0) return;
  fmt::print("weights          {} to download, at most {} of them on the disk at a time{}\n",
             format_bytes(cost.to_download), format_bytes(cost.disk),
             options.sweep.evict ? "" : " (with --evict less)");
  const auto flop_per_second = parse_flops(options.speed);
  const auto bytes_per_second = parse_bytes(options.bandwidth, "--bandwidth");
  fmt::print("work             {:.3g} FLOP, {} at {}FLOP/s; download {} at {} per second\n",
             cost.flop, format_duration(cost.flop / flop_per_second), options.speed,
             format_duration(static_cast<double>(cost.to_download) /
                             static_cast<double>(bytes_per_second)),
             options.bandwidth);
}

void print_plan(const SweepCommand& command, const SweepArguments& options) {
  parse_flops(options.speed);  // or complain before the work
  parse_bytes(options.bandwidth, "--bandwidth");
  SweepCost cost;
  std::int64_t failed = 0;
  ErrorKind kind = ErrorKind::bad_input;
  for (const auto& run : command.sweep.plan(command.options)) {
    print_planned(run);
    if (!run.error.empty()) {
      ++failed;
      if (run.error_kind == ErrorKind::failure) kind = ErrorKind::failure;
    }
    cost.add(run);
  }
  print_cost(cost, options, command.sweep.folder());
  if (failed > 0) throw Error(kind, fmt::format("{} runs cannot be done as they are", failed));
}

void run(SweepArguments& options) {
  options.common.apply();
  if (!options.shard.empty())
    std::tie(options.sweep.shard.index, options.sweep.shard.count) = parse_shard(options.shard);
  auto& compute = options.source.compute;
  if (!options.devices.empty()) compute.devices = split(options.devices, ',');
  if (!options.dtype.empty()) compute.dtype = parse_compute_dtype(options.dtype, "--dtype");
  if (!options.device_memory.empty())
    compute.device_memory = parse_bytes(options.device_memory, "--device-memory");
  options.sweep.publish = !options.no_publish;
  options.sweep.quiet = options.common.quiet;
  SweepCommand command{Sweep::read(options.source, options.results), options.sweep,
                       !options.no_figures};
  if (options.dry_run) return print_plan(command, options);
  command.options.stop = &watch_stop_signals();
  run_sweep_command(command);
}

}  // namespace

void add_sweep(CLI::App& app) {
  auto options = std::make_shared<SweepArguments>();
  auto* command = app.add_subcommand("sweep", "Capture and analyse a list of checkpoints");
  command->add_option("file", options->source.file, "The sweep (YAML)")->required();
  command
      ->add_option("--out", options->results, "Folder of results; the sweep's name goes below it")
      ->capture_default_str();
  command->add_option("--only", options->sweep.only, "Only the run with this label; repeatable")
      ->allow_extra_args(false);
  command
      ->add_option("--set", options->source.overrides,
                   "Override a field of every capture: capture.min_bucket_size=256; repeatable")
      ->allow_extra_args(false);
  auto* every = command
                    ->add_option("--every", options->source.every,
                                 "Every N-th of the file's `checkpoints`, and the last; 1: all")
                    ->check(CLI::PositiveNumber);
  command
      ->add_option("--log", options->source.log,
                   "At most N of each phase of the file's `checkpoints`, evenly in the logarithm "
                   "of the step")
      ->check(CLI::PositiveNumber)
      ->excludes(every);
  command->add_option("--data", options->source.data_folder,
                      "Folder that relative paths in the sweep are looked up in first");
  command->add_option("--jobs", options->sweep.jobs, "Runs at a time; they share the threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--shard", options->shard,
                      "i/n: every n-th run, from the i-th (0 to n-1); auto: i and n from Slurm, "
                      "Kubernetes or QKSCOPE_SHARD_INDEX and _COUNT");
  command->add_flag("--overwrite", options->sweep.overwrite,
                    "Capture again where the configuration is another than before");
  command->add_flag("--evict", options->sweep.evict,
                    "Remove a checkpoint's weights from the Hub's cache after its last run");
  add_compute_options(*command, *options);
  command->add_flag("--no-publish", options->no_publish,
                    "Do not publish, whatever the file's section publish says");
  command->add_flag("--dry-run", options->dry_run,
                    "Print what would be done and what it takes, and write nothing");
  command
      ->add_option("--speed", options->speed,
                   "FLOP/s that --dry-run reckons the time with: 90G, 400T (one H200 in bfloat16)")
      ->capture_default_str();
  command
      ->add_option("--bandwidth", options->bandwidth,
                   "Bytes per second that --dry-run reckons downloads with")
      ->capture_default_str();
  command->add_flag("--no-figures", options->no_figures, "Tables only");
  options->common.add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace qkscope::cli
