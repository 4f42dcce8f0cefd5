// qkscope combine: concatenates the tables of several sweeps.

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/logging.h"
#include "cli/numbers.h"
#include "cli/output_folder.h"
#include "qkscope/experimental/store.h"
#include "qkscope/experimental/study.h"

namespace qkscope::cli {
namespace {

struct CombineArguments {
  CommonOptions common;
  std::vector<std::string> sweeps;
  std::string out;
};

void run(CombineArguments& options) {
  check_output_folder(options.out);
  StoredOutput output(options.out, "tables");
  const auto tables = combine_sweeps(options.sweeps, output.folder());
  output.publish(options.common.quiet);
  if (!options.common.quiet)
    for (const auto& table : tables)
      fmt::print("{:<20} {:>12} rows of {} sweeps\n", table.name, format_number(table.rows),
                 table.sweeps);
  info("tables are in {}", options.out);
}

}  // namespace

void add_combine(CLI::App& app) {
  auto [command, options] = add_command<CombineArguments>(
      app, "combine", "Tables of several sweeps become one set of tables, for SQL", run);
  command
      ->add_option("sweeps", options->sweeps,
                   "Folders or addresses of sweeps (RESULTS/NAME), or NAME=FOLDER for another name")
      ->required();
  command->add_option("--out", options->out, "Folder or address for the tables (made if missing)")
      ->required();
  command->footer(
      "Rows are concatenated; columns are matched by name, and missing ones are null. "
      "docs/how-to/atlas.md "
      "queries the tables with SQL.\nmerge: shards of one run. combine: tables of several sweeps. "
      "pool: heads of several analyses.");
}

}  // namespace qkscope::cli
