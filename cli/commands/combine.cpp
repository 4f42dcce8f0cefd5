// qkscope combine: the tables of many sweeps one below the other.
#include <memory>

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

void run(const CombineArguments& options) {
  options.common.apply();
  check_output_folder(options.out);
  StoredOutput output(options.out, "tables");
  const auto tables = combine_sweeps(options.sweeps, output.folder());
  output.publish(options.common.quiet);
  if (!options.common.quiet)
    for (const auto& table : tables)
      fmt::print("{:<20} {:>12} rows of {} sweeps\n", table.name, number(table.rows), table.sweeps);
  info("tables are in {}", options.out);
}

}  // namespace

void add_combine(CLI::App& app) {
  auto options = std::make_shared<CombineArguments>();
  auto* command = app.add_subcommand("combine", "Stack the tables of many sweeps, for SQL");
  command
      ->add_option("sweeps", options->sweeps,
                   "Folders or addresses of sweeps (RESULTS/NAME), or NAME=FOLDER for another name")
      ->required();
  command->add_option("--out", options->out, "Folder or address for the tables (made if missing)")
      ->required();
  command->footer(
      "Columns are joined by name; what a sweep lacks is null. docs/atlas.md asks them with SQL.");
  options->common.add_to(*command);
  command->callback([options] { run(*options); });
}

}  // namespace qkscope::cli
