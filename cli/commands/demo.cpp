// qkscope demo: the experiment over training checkpoints on the small model that comes with
// qkscope.
#include <cstdlib>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/stop_signal.h"
#include "cli/sweep_command.h"
#include "core/error.h"
#include "io/folder.h"

namespace qkscope::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  CommonOptions common;
  std::string results = "results";
  bool no_figures = false;
};

// Where the demo's files may lie.
struct DemoPlace {
  fs::path data;   // corpus.jsonl and checkpoints/
  fs::path sweep;  // the file that says what to do with them
};

std::vector<DemoPlace> demo_places() {
  const auto shared = [](const fs::path& root) {
    return DemoPlace{root / "demo", root / "configs/demo/sweep.yaml"};
  };
  if (const char* chosen = std::getenv("QKSCOPE_DATA"); chosen != nullptr && *chosen != '\0')
    return {shared(chosen)};
  std::error_code ignored;
  const auto program = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path source = QKSCOPE_SOURCE_DIR;
  return {shared(program.parent_path().parent_path() / "share/qkscope"),
          {source / "share/demo", source / "configs/demo/sweep.yaml"}};
}

// Short where it lies below the working folder, as a user would write it.
std::string as_typed(const fs::path& path) {
  std::error_code ignored;
  const auto relative = fs::relative(path, ignored);
  const bool below = !relative.empty() && *relative.begin() != "..";
  return below ? relative.string() : path.lexically_normal().string();
}

SweepSource find_demo() {
  std::vector<std::string> looked;
  for (const auto& place : demo_places()) {
    looked.push_back(place.data.string());
    if (path_exists((place.data / "corpus.jsonl").string()) && path_exists(place.sweep.string()))
      return {.file = as_typed(place.sweep), .overrides = {}, .data_folder = as_typed(place.data)};
  }
  bad_input(
      "the demo's checkpoints and texts are not there; looked in {}. Set QKSCOPE_DATA to the "
      "folder share/qkscope of an installation",
      fmt::join(looked, " and "));
}

void run(const Options& options) {
  options.common.apply();
  auto config = read_sweep(find_demo());
  auto folder = SweepFolder::of(options.results, config);
  run_sweep_command({std::move(config),
                     std::move(folder),
                     {.only = {},
                      .shard = {},
                      .quiet = options.common.quiet,
                      .compact = true,
                      .stop = &watch_stop_signals()},
                     !options.no_figures});
}

}  // namespace

void add_demo(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* command = app.add_subcommand(
      "demo", "Follow position through the training of the small model that comes with qkscope");
  command->add_option("--out", options->results, "Folder of results")->capture_default_str();
  command->add_flag("--no-figures", options->no_figures, "Tables only");
  options->common.add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace qkscope::cli
