// Figures of the columns of the table `geometry` over the runs of a sweep: one figure per topic,
// with separate lines for RoPE and NoPE layers.
#include <algorithm>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"
#include "analysis/results/geometry_columns.h"

namespace qkscope {
namespace {

// Adds a panel with a line for RoPE and a line for NoPE layers; columns without values are skipped.
void add_panel(const AnalysisResults& results, const Json& panel, TrajectoryTable& table,
               std::vector<TrajectoryPanel>& panels, std::vector<PlotSeries>& legend) {
  const ResultFrame& frame = results.frame("geometry");
  const std::string column = panel.at("column");
  if (!frame.has(column)) return;
  std::vector<PlotSeries> series;
  for (const std::string rope : {"rope", "nope"}) {
    const auto heads = frame.group_by_run(
        column, [&](std::size_t row) { return frame.text_column("rope")[row] == rope; });
    if (std::ranges::all_of(heads, [](const auto& values) { return values.empty(); })) continue;
    const bool nope = rope == "nope";
    const LegendEntry look = {nope ? "NoPE layers" : "RoPE layers",
                              nope ? style::kNope : style::kRope,
                              nope ? style::kDiamond : style::kCircle};
    series.push_back(table.add_measure({fmt::format("{}_{}", rope, column),
                                        SummaryStatistic::mean_and_quartiles, look, column, rope},
                                       heads));
  }
  if (series.empty()) return;
  panels.push_back(
      {panel.at("label"), "set yrange [*:*]\n", plot_series(series, results.runs().size())});
  if (series.size() > legend.size()) legend = series;
}

}  // namespace

Figure geometry_over_runs(const AnalysisResults& results, const FigureKind& kind) {
  TrajectoryTable table(results);
  std::vector<TrajectoryPanel> panels;
  std::vector<PlotSeries> legend;
  for (const auto& panel : kind.keys.at("panels")) add_panel(results, panel, table, panels, legend);
  if (panels.empty()) return empty_figure("the runs have no column of this question");
  const auto question =
      std::ranges::find(geometry_questions(), kind.text("question"), &GeometryQuestion::name);
  Figure figure;
  figure.title = question->title;
  figure.question = question->name;
  figure.caption = fmt::format(
      "{} Per run, heads of RoPE layers (circles) and of NoPE layers (diamonds) apart: mean over "
      "heads, band between the quartiles. Dashed lines separate phases.{}",
      question->sentence, table.error_bars_note());
  return table.draw(std::move(figure), panels,
                    {.panel_height = 1.25,
                     .columns = panels.size() > 1 ? 2 : 1,
                     .legend = legend_entries(legend)});
}

}  // namespace qkscope
