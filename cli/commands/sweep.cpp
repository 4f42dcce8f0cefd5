// qkscope sweep: capture and analyse a list of checkpoints.
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
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
  std::string dtype;
  std::string device_memory;
  bool dry_run = false;
  bool no_figures = false;
  bool no_publish = false;
};

// As for one capture; here they hold for every run.
void add_compute_options(CLI::App& command, SweepArguments& options) {
  auto& compute = options.source.compute;
  command.add_option("--device", compute.device, "auto, cpu, cuda or cuda:N (default: the file's)");
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

std::string publication(const PlannedRun& run) {
  if (run.publish.empty()) return "";
  return fmt::format(", {} {}", run.published ? "published to" : "to publish to", run.publish);
}

void print_planned(const PlannedRun& run) {
  if (!run.error.empty()) {
    fmt::print("{:<16} {}\n", run.label, run.error);
  } else if (run.captured) {
    fmt::print("{:<16} captured, {}{}\n", run.label, run.analysed ? "analysed" : "to analyse",
               publication(run));
  } else {
    const auto& planned = *run.capture;
    fmt::print("{:<16} to capture: {} examples, {} tokens; {} rows in {} files, {}{}\n", run.label,
               number(planned.examples), number(planned.tokens), number(planned.rows),
               number(planned.files), bytes(planned.bytes), publication(run));
  }
}

void print_plan(const SweepCommand& command) {
  PlannedRun::Capture total;
  std::int64_t failed = 0;
  ErrorKind kind = ErrorKind::bad_input;
  for (const auto& run : command.sweep.plan(command.options)) {
    print_planned(run);
    if (!run.error.empty()) {
      ++failed;
      if (run.error_kind == ErrorKind::failure) kind = ErrorKind::failure;
    }
    if (!run.capture) continue;
    total.tokens += run.capture->tokens;
    total.rows += run.capture->rows;
    total.bytes += run.capture->bytes;
  }
  fmt::print("in all           {} tokens, {} rows, {} before compression, into {}\n",
             number(total.tokens), number(total.rows), bytes(total.bytes), command.sweep.folder());
  if (failed > 0) throw Error(kind, fmt::format("{} runs cannot be done as they are", failed));
}

void run(SweepArguments& options) {
  options.common.apply();
  if (!options.shard.empty())
    std::tie(options.sweep.shard.index, options.sweep.shard.count) = parse_shard(options.shard);
  auto& compute = options.source.compute;
  if (!options.dtype.empty()) compute.dtype = parse_compute_dtype(options.dtype, "--dtype");
  if (!options.device_memory.empty())
    compute.device_memory = parse_bytes(options.device_memory, "--device-memory");
  options.sweep.publish = !options.no_publish;
  options.sweep.quiet = options.common.quiet;
  SweepCommand command{Sweep::read(options.source, options.results), options.sweep,
                       !options.no_figures};
  if (options.dry_run) return print_plan(command);
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
  command->add_option("--data", options->source.data_folder,
                      "Folder that relative paths in the sweep are looked up in first");
  command->add_option("--jobs", options->sweep.jobs, "Runs at a time; they share the threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--shard", options->shard, "i/n: every n-th run, from the i-th (0 to n-1)");
  command->add_flag("--overwrite", options->sweep.overwrite,
                    "Capture again where the configuration is another than before");
  command->add_flag("--evict", options->sweep.evict,
                    "Remove a checkpoint's weights from the Hub's cache after its last run");
  add_compute_options(*command, *options);
  command->add_flag("--no-publish", options->no_publish,
                    "Do not publish, whatever the file's section publish says");
  command->add_flag("--dry-run", options->dry_run, "Print what would be done and write nothing");
  command->add_flag("--no-figures", options->no_figures, "Tables only");
  options->common.add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace qkscope::cli
