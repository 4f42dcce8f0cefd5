// qkscope sweep: captures and analyses a list of checkpoints; --status prints the progress.

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/stop_signal.h"
#include "cli/sweep_command.h"
#include "cli/sweep_options.h"

namespace qkscope::cli {
namespace {

struct SweepArguments {
  CommonOptions common;
  SweepFileArguments file;
  SweepOptions sweep;
  CostOptions cost;
  std::string part;
  std::string shard;
  std::int64_t shards = 0;
  double watch_seconds = 0;
  bool status = false;
  bool json = false;
  bool dry_run = false;
  bool no_figures = false;
  bool no_publish = false;
};

// --shard selects every n-th run; with --part capture, every n-th text of each run.
void choose_shards(SweepArguments& options) {
  auto& sweep = options.sweep;
  if (options.shards > 0 && sweep.part != SweepPart::merge)
    reject("--shards says how many shards are merged: expected --part merge beside it");
  if (options.shards > 0) sweep.texts.count = options.shards;
  if (options.shard.empty()) return;
  (sweep.part == SweepPart::capture ? sweep.texts : sweep.shard) = parse_shard(options.shard);
}

void check_part(const SweepArguments& options) {
  if (options.sweep.part == SweepPart::all) return;
  if (options.dry_run) reject("--dry-run tells about whole runs; leave --part out");
  if (options.sweep.evict)
    reject("--evict: other parts of the sweep need the weights; leave it or --part out");
}

void run(SweepArguments& options) {
  if (options.status)
    return print_sweep_status(options.file.read(), options.watch_seconds, options.json);
  options.sweep.part = parse_sweep_part(options.part, "--part");
  check_part(options);
  choose_shards(options);
  options.sweep.publish = !options.no_publish;
  options.sweep.quiet = options.common.quiet;
  SweepCommand command{options.file.read(), options.sweep, !options.no_figures};
  if (options.dry_run) {
    return print_sweep_plan(command.sweep.plan(command.options), options.cost, options.sweep.evict,
                            command.sweep.place());
  }
  command.options.stop = &watch_stop_signals();
  run_sweep_command(command);
}

}  // namespace

void add_sweep(CLI::App& app) {
  auto [command, options] = add_command<SweepArguments>(
      app, "sweep", "Capture and analyse a list of checkpoints, or show its progress (--status)",
      run);
  options->file.add_to(*command);
  start_section(*command, "Runs");
  command
      ->add_option("--only", options->sweep.only,
                   "Only the run with this label; repeatable (default: all)")
      ->allow_extra_args(false);
  command->add_option("--jobs", options->sweep.jobs, "Runs at a time; they share the threads")
      ->check(integer_between(1, 256))
      ->capture_default_str();
  command->add_option(
      "--shard", options->shard,
      "Every N-th run, from number I (0 to N-1), with --part capture every N-th text "
      "of each run (default: all); auto: I and N from Slurm, Kubernetes or "
      "QKSCOPE_SHARD_INDEX and _COUNT");
  command
      ->add_option("--part", options->part,
                   "Only this stage of the chosen runs, for tasks of a cluster: capture (the texts "
                   "of --shard), merge, analyse, or tables (of all runs, with figures) (default: "
                   "all stages)")
      ->type_name("capture|merge|analyse|tables");
  command
      ->add_option("--shards", options->shards,
                   "With --part merge: the number of shards the texts were divided into")
      ->check(integer_between(1, kMostShards));
  start_section(*command, "Output");
  command->add_flag("--overwrite", options->sweep.overwrite,
                    "Capture again where the configuration has changed");
  command->add_flag("--evict", options->sweep.evict,
                    "Remove a checkpoint's weights from the Hub cache after its last run");
  command->add_flag("--no-publish", options->no_publish,
                    "Do not publish, even if the file has a section `publish`");
  command->add_flag("--dry-run", options->dry_run,
                    "Print the plan and its cost, and write nothing");
  options->cost.add_to(*command);
  command->add_flag("--no-figures", options->no_figures, "Tables only");
  start_section(*command, "Progress");
  auto* status = command->add_flag("--status", options->status,
                                   "Print the progress, on one machine or on a cluster, and exit");
  command
      ->add_option(
          "--watch", options->watch_seconds,
          "With --status: print again every so many seconds until all runs are done (default: "
          "print once)")
      ->check(number_between(0.1, 86400.0))
      ->needs(status);
  command->add_flag("--json", options->json, "With --status: print one JSON object")->needs(status);
}

}  // namespace qkscope::cli
