// qkscope merge: make the final files of a capture that ran in shards.
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "qkscope/capture.h"
#include "qkscope/text.h"

namespace qkscope::cli {
namespace {

struct MergeOptions {
  CommonOptions common;
  std::string data_root;
};

void run(const MergeOptions& options) {
  options.common.apply();
  const auto result = merge_capture(options.data_root, options.common.quiet);
  if (options.common.quiet) return;
  if (result.outcome == CaptureResult::Outcome::already_finished)
    fmt::print("{}: already merged\n", options.data_root);
  else
    fmt::print("{} examples, {} rows in {}\n",
               format_count(static_cast<std::uint64_t>(result.examples)),
               format_count(static_cast<std::uint64_t>(result.rows)), options.data_root);
}

}  // namespace

void add_merge(CLI::App& app) {
  auto options = std::make_shared<MergeOptions>();
  auto* command = app.add_subcommand(
      "merge", "Make the final files of a capture once all its shards are there");
  command->add_option("data_root", options->data_root, "Folder that the shards were captured into")
      ->required();
  options->common.add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace qkscope::cli
