// qkscope check: verifies the files of a finished capture, of statistics or of results.
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/numbers.h"
#include "qkscope/experimental/verify.h"

namespace qkscope::cli {
namespace {

struct CheckOptions {
  CommonOptions common;
  std::string folder;
};

void run(CheckOptions& options) {
  const auto found = verify_folder(options.folder);
  for (const auto& problem : found.problems) fmt::print("{}\n", problem);
  if (!found.problems.empty())
    reject("{}: {} of {} files of this {} are damaged or missing", options.folder,
           found.problems.size(), found.files, found.kind);
  if (!options.common.quiet)
    fmt::print("{}: {}, {} files, {} bytes, all intact\n", options.folder, found.kind,
               format_number(found.files), format_number(static_cast<std::int64_t>(found.bytes)));
}

}  // namespace

void add_check(CLI::App& app) {
  auto [command, options] = add_command<CheckOptions>(
      app, "check", "Verify the files of a finished capture, of statistics or of results", run);
  command->add_option("folder", options->folder, "Folder of the capture, statistics or results")
      ->required();
}

}  // namespace qkscope::cli
