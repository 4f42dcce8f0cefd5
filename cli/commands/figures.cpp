// qkscope figures: draws the figures and writes the report of an analysis or sweep.
#include "qkscope/figures.h"

#include <map>

#include <fmt/ranges.h>

#include "cli/analysis_options.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/logging.h"
#include "cli/output_folder.h"
#include "qkscope/analysis.h"
#include "qkscope/captures.h"
#include "qkscope/experimental/store.h"
#include "qkscope/experimental/text.h"

namespace qkscope::cli {
namespace {

struct FiguresCommand {
  CommonOptions common;
  DrawOptions options;
  AnalyzeOptions analysis;
  std::string formats = "svg,png,pdf";
  std::string components;
  bool no_report = false;

  void add_to(CLI::App& command);
  void run();

 private:
  void analyze_first();
};

void FiguresCommand::add_to(CLI::App& command) {
  command
      .add_option("results", options.results,
                  "Results: the folder or address of 'qkscope analyze --out' or of a sweep. A "
                  "capture (a folder, an address, or REPO@BRANCH) is analysed first, into "
                  "OUT/results")
      ->required();
  command.add_option("--out", options.out, "Folder or address for the figures (made if missing)")
      ->required();
  command.add_option("--only", options.only,
                     "Draw only this figure, without the report (default: all)");
  command.add_option("--format", formats, "Formats of the figures, some of these")
      ->capture_default_str();
  command.add_option("--components", components,
                     "Two principal components for qk_collage and the report (default: 0,1)");
  command.add_option(
      "--heads", options.head,
      "LAYER.HEAD that head_planes shows (default: the first of analyze --planes-of)");
  command
      .add_option(
          "--scores", options.scores,
          "CSV of benchmark scores (benchmark, model, metric, value): draws ap_drop_vs_score "
          "(default: none)")
      ->check(existing_file());
  command.add_option("--attention", options.attention,
                     "Only heads of this kind of attention: full, sliding:512 (default: all)");
  command.add_flag("--no-report", no_report, "Do not write report.html");
  add_analysis_options(command, analysis, {OptionGroup::capture});
}

void FiguresCommand::analyze_first() {
  analysis.data_root = options.results;
  analysis.quiet = common.quiet;
  options.results = options.out + "/results";
  check_output_folder(options.results);
  const AnalysisRun run = analyze_capture(analysis);
  write_results(options.results, run, analysis, true);
  info("{} heads; results in {}", run.heads.size(), options.results);
  report_failed_heads(run, options.results);
}

void FiguresCommand::run() {
  options.formats = split(formats, ',');
  if (!components.empty()) options.components = parse_components(components);
  options.report = !no_report;
  options.quiet = common.quiet;
  const auto asked = options.out;
  StoredOutput output(asked, "figures");
  options.out = output.folder();
  if (names_capture(options.results))
    analyze_first();
  else
    options.results = fetch_stored(options.results, common.quiet);
  const Drawn drawn = draw_figures(options);
  std::map<std::string, std::vector<std::string>> left_out;  // names by reason
  for (const auto& [name, why] : drawn.left_out) left_out[why].push_back(name);
  for (const auto& [why, names] : left_out) info("{} left out: {}", fmt::join(names, ", "), why);
  if (!drawn.of_several.empty())
    info("left out because they compare runs, and this is one: {}",
         fmt::join(drawn.of_several, ", "));
  output.publish(common.quiet);
  info("{} figures in {}", drawn.figures.size(), asked);
  if (!drawn.report.empty() && !is_store_address(asked)) info("report: {}", drawn.report);
}

}  // namespace

void add_figures(CLI::App& app) {
  auto [command, figures] =
      add_command<FiguresCommand>(app, "figures", "Draw the figures and the report of results",
                                  [](FiguresCommand& chosen) { chosen.run(); });
  figures->add_to(*command);
}

}  // namespace qkscope::cli
