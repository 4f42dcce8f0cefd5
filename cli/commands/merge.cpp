// qkscope merge: writes the final files of a capture or statistics run that was split into shards,
// or joins the finished statistics of several runs.

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/numbers.h"
#include "qkscope/capture.h"
#include "qkscope/experimental/store.h"
#include "qkscope/statistics.h"

namespace qkscope::cli {
namespace {

struct MergeOptions {
  CommonOptions common;
  std::vector<std::string> folders;
  std::string out;
};

void print_merge_result(const StatsResult& result, const std::string& folder) {
  if (result.outcome == CaptureResult::Outcome::already_finished)
    fmt::print("{}: already merged\n", folder);
  else
    fmt::print("statistics of {} documents, {} tokens in {}\n", format_number(result.examples),
               format_number(result.tokens), folder);
}

void merge_shards_of_capture(const std::string& folder, bool quiet) {
  const auto result = merge_capture(folder, quiet);
  if (quiet) return;
  if (result.outcome == CaptureResult::Outcome::already_finished)
    fmt::print("{}: already merged\n", folder);
  else
    fmt::print("{} examples, {} rows in {}\n", format_number(result.examples),
               format_number(result.rows), folder);
}

void run(MergeOptions& options) {
  const bool quiet = options.common.quiet;
  if (!options.out.empty()) {
    StoredOutput output(options.out, "statistics");
    auto folders = options.folders;
    for (auto& folder : folders) folder = fetch_stored(folder, quiet);
    const auto result = merge_stats_folders(folders, output.folder());
    output.publish(quiet);
    if (!quiet) print_merge_result(result, options.out);
    return;
  }
  if (options.folders.size() > 1)
    reject("several folders are joined into a new one: give it with --out");
  const auto& folder = options.folders.front();
  if (!holds_statistics(folder)) return merge_shards_of_capture(folder, quiet);
  const auto result = merge_stats_shards(folder);
  if (!quiet) print_merge_result(result, folder);
}

}  // namespace

void add_merge(CLI::App& app) {
  auto [command, options] = add_command<MergeOptions>(
      app, "merge",
      "Shards of one run become its final files; with --out, finished statistics are joined", run);
  command
      ->add_option("data_root", options->folders,
                   "Folder or address that the shards were written to; with --out, folders of "
                   "finished statistics")
      ->required();
  command->add_option("--out", options->out,
                      "New folder for the joined statistics (default: merge shards in place)");
  command->footer(
      "merge: shards of one run. combine: tables of several sweeps. pool: heads of several "
      "analyses.");
}

}  // namespace qkscope::cli
