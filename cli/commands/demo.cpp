// qkscope demo: runs a sweep over training checkpoints of the small model that comes with qkscope.

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/stop_signal.h"
#include "cli/sweep_command.h"

namespace qkscope::cli {
namespace {

struct DemoArguments {
  CommonOptions common;
  std::string results = "results";
  bool no_figures = false;
};

void run(DemoArguments& options) {
  run_sweep_command({Sweep::read(demo_sweep(), options.results),
                     {.only = {},
                      .shard = {},
                      .quiet = options.common.quiet,
                      .compact = true,
                      .stop = &watch_stop_signals()},
                     !options.no_figures});
}

}  // namespace

void add_demo(CLI::App& app) {
  auto [command, options] = add_command<DemoArguments>(
      app, "demo", "Run a sweep over the training checkpoints of the small included model", run);
  command->add_option("--out", options->results, "Folder or address of results")
      ->capture_default_str();
  command->add_flag("--no-figures", options->no_figures, "Tables only");
}

}  // namespace qkscope::cli
