// qkscope sweep: capture and analyse a list of checkpoints.
#include <memory>
#include <tuple>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/shard.h"
#include "cli/stop_signal.h"
#include "cli/sweep_command.h"
#include "cli/sweep_cost.h"
#include "cli/sweep_options.h"

namespace qkscope::cli {
namespace {

struct SweepArguments {
  CommonOptions common;
  SweepOptionsOfFile file;
  SweepOptions sweep;
  CostOptions cost;
  std::string part;
  std::string shard;
  std::int64_t shards = 0;
  bool dry_run = false;
  bool no_figures = false;
  bool no_publish = false;
};

// --shard deals runs, or with --part capture the texts of every run.
void choose_shards(SweepArguments& options) {
  auto& sweep = options.sweep;
  if (options.shards > 0 && sweep.part != SweepPart::merge)
    bad_input("--shards says how many shards are merged: expected --part merge beside it");
  if (options.shards > 0) sweep.texts.count = options.shards;
  if (options.shard.empty()) return;
  auto& dealt = sweep.part == SweepPart::capture ? sweep.texts : sweep.shard;
  std::tie(dealt.index, dealt.count) = parse_shard(options.shard);
}

void check_part(const SweepArguments& options) {
  if (options.sweep.part == SweepPart::all) return;
  if (options.dry_run) bad_input("--dry-run tells about whole runs; leave --part out");
  if (options.sweep.evict)
    bad_input("--evict: other parts of the sweep need the weights; leave it or --part out");
}

void run(SweepArguments& options) {
  options.common.apply();
  options.sweep.part = parse_sweep_part(options.part, "--part");
  check_part(options);
  choose_shards(options);
  options.sweep.publish = !options.no_publish;
  options.sweep.quiet = options.common.quiet;
  SweepCommand command{options.file.read(), options.sweep, !options.no_figures};
  if (options.dry_run) {
    options.cost.flop_per_second();  // or complain before the work
    options.cost.bytes_per_second();
    return print_sweep_plan(command.sweep.plan(command.options), options.cost, options.sweep.evict,
                            command.sweep.place());
  }
  command.options.stop = &watch_stop_signals();
  run_sweep_command(command);
}

}  // namespace

void add_sweep(CLI::App& app) {
  auto options = std::make_shared<SweepArguments>();
  auto* command = app.add_subcommand("sweep", "Capture and analyse a list of checkpoints");
  options->file.add_source_to(*command);
  command->add_option("--only", options->sweep.only, "Only the run with this label; repeatable")
      ->allow_extra_args(false);
  command->add_option("--jobs", options->sweep.jobs, "Runs at a time; they share the threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--shard", options->shard,
                      "i/n: every n-th run, from the i-th (0 to n-1), with --part capture every "
                      "n-th text of each run; auto: i and n from Slurm, Kubernetes or "
                      "QKSCOPE_SHARD_INDEX and _COUNT");
  command->add_option(
      "--part", options->part,
      "Only this part of the chosen runs, for tasks of a cluster: capture (the texts "
      "of --shard), merge, analyse, or tables (of all runs, with figures)");
  command
      ->add_option("--shards", options->shards,
                   "With --part merge: how many shards the texts were dealt to")
      ->check(positive());
  command->add_flag("--overwrite", options->sweep.overwrite,
                    "Capture again where the configuration is another than before");
  command->add_flag("--evict", options->sweep.evict,
                    "Remove a checkpoint's weights from the Hub's cache after its last run");
  options->file.add_compute_to(*command);
  command->add_flag("--no-publish", options->no_publish,
                    "Do not publish, whatever the file's section publish says");
  command->add_flag("--dry-run", options->dry_run,
                    "Print what would be done and what it takes, and write nothing");
  options->cost.add_to(*command);
  command->add_flag("--no-figures", options->no_figures, "Tables only");
  options->common.add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace qkscope::cli
