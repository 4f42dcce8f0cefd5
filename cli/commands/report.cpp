// qkscope report: writes the report of one result, or of two results side by side.
#include "cli/analysis_options.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/logging.h"
#include "qkscope/experimental/store.h"
#include "qkscope/figures.h"

namespace qkscope::cli {
namespace {

struct ReportCommand {
  CommonOptions common;
  ReportOptions options;
  std::string components;
};

void run(ReportCommand& arguments) {
  auto& options = arguments.options;
  if (is_store_address(options.out))
    reject("--out: {} is an address; expected a local file such as report.html", options.out);
  if (!arguments.components.empty()) options.components = parse_components(arguments.components);
  options.quiet = arguments.common.quiet;
  for (auto* folder : {&options.results, &options.compare})
    if (!folder->empty()) *folder = fetch_stored(*folder, options.quiet);
  const Drawn drawn = write_report(options);
  info("report: {}", drawn.report);
}

}  // namespace

void add_report(CLI::App& app) {
  auto [command, arguments] = add_command<ReportCommand>(
      app, "report", "Write the report of one result, or of two side by side", run);
  auto& options = arguments->options;
  command
      ->add_option("results", options.results,
                   "Results: the folder or address of 'qkscope analyze --out' or of a sweep")
      ->required();
  command->add_option("--compare", options.compare,
                      "Second results, of a model with the same layers and heads: the report shows "
                      "both values of every head and their difference");
  command->add_option("--out", options.out, "HTML file to write")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_option("--components", arguments->components,
                      "Two principal components for the points of a head (default: 0,1)");
  command->add_option("--attention", options.attention,
                      "Only heads of this kind of attention: full, sliding:512 (default: all)");
}

}  // namespace qkscope::cli
