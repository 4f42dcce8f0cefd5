// qkscope merge: make the final files of a capture or of statistics that ran in shards, or join
// finished statistics.
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "qkscope/capture.h"
#include "qkscope/experimental/store.h"
#include "qkscope/experimental/text.h"
#include "qkscope/statistics.h"

namespace qkscope::cli {
namespace {

struct MergeOptions {
  CommonOptions common;
  std::vector<std::string> folders;
  std::string out;
};

std::string counted(std::int64_t number) {
  return format_count(static_cast<std::uint64_t>(number));
}

void print_merged(const StatsResult& result, const std::string& folder) {
  if (result.outcome == CaptureResult::Outcome::already_finished)
    fmt::print("{}: already merged\n", folder);
  else
    fmt::print("statistics of {} documents, {} tokens in {}\n", counted(result.examples),
               counted(result.tokens), folder);
}

void merge_shards_of_capture(const std::string& folder, bool quiet) {
  const auto result = merge_capture(folder, quiet);
  if (quiet) return;
  if (result.outcome == CaptureResult::Outcome::already_finished)
    fmt::print("{}: already merged\n", folder);
  else
    fmt::print("{} examples, {} rows in {}\n", counted(result.examples), counted(result.rows),
               folder);
}

void run(const MergeOptions& options) {
  options.common.apply();
  const bool quiet = options.common.quiet;
  if (!options.out.empty()) {
    StoredOutput output(options.out, "statistics");
    auto folders = options.folders;
    for (auto& folder : folders) folder = fetch_stored(folder, quiet);
    const auto result = merge_stats_folders(folders, output.folder());
    output.publish(quiet);
    if (!quiet) print_merged(result, options.out);
    return;
  }
  if (options.folders.size() > 1)
    bad_input("several folders are joined into a new one: give it with --out");
  const auto& folder = options.folders.front();
  if (!holds_statistics(folder)) return merge_shards_of_capture(folder, quiet);
  const auto result = merge_stats_shards(folder);
  if (!quiet) print_merged(result, folder);
}

}  // namespace

void add_merge(CLI::App& app) {
  auto options = std::make_shared<MergeOptions>();
  auto* command = app.add_subcommand(
      "merge",
      "Make the final files of a capture or of statistics once all shards are there; or join "
      "finished statistics");
  command
      ->add_option("data_root", options->folders,
                   "Folder or address that the shards were written into; with --out finished "
                   "statistics")
      ->required();
  command->add_option("--out", options->out,
                      "Join the statistics of several folders into this new one");
  options->common.add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace qkscope::cli
