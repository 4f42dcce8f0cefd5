#include "qkscope/figures.h"

#include <memory>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/logging.h"
#include "qkscope/text.h"

namespace qkscope::cli {
namespace {

struct FiguresCommand {
  CommonOptions common;
  DrawOptions options;
  std::string formats = "svg,png,pdf";
  bool no_report = false;

  void add_to(CLI::App& command);
  void run();
};

void FiguresCommand::add_to(CLI::App& command) {
  command
      .add_option("results", options.results,
                  "Results: the folder of 'qkscope analyze --out' or of a sweep")
      ->required();
  command.add_option("--out", options.out, "Folder for the figures (made if missing)")->required();
  command.add_option("--only", options.only, "Draw this figure alone, without the report");
  command.add_option("--format", formats, "Some of svg,png,pdf")->capture_default_str();
  command.add_flag("--no-report", no_report, "Do not write report.html");
  common.add_to(command);
}

void FiguresCommand::run() {
  common.apply();
  options.formats = split(formats, ',');
  options.report = !no_report;
  options.quiet = common.quiet;
  const Drawn drawn = draw_figures(options);
  for (const auto& [name, why] : drawn.left_out) info("{} left out: {}", name, why);
  info("{} figures in {}", drawn.figures.size(), options.out);
  if (!drawn.report.empty()) info("report: {}", drawn.report);
}

}  // namespace

void add_figures(CLI::App& app) {
  auto* command = app.add_subcommand("figures", "Draw the figures and the report of results");
  const auto figures = std::make_shared<FiguresCommand>();
  figures->add_to(*command);
  command->callback([figures] { figures->run(); });
}

}  // namespace qkscope::cli
