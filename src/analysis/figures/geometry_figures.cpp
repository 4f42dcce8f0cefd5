// Figures of the columns of the table `geometry` over the runs of a sweep: one figure per topic,
// with separate lines for RoPE and NoPE layers.
#include <algorithm>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"
#include "analysis/results/geometry_columns.h"

namespace qkscope {
namespace {

struct GeometryPanel {
  const char* column;
  const char* label;  // gnuplot markup
};

struct GeometryFigure {
  const char* question;
  std::vector<GeometryPanel> panels;
};

const std::vector<GeometryFigure> kGeometryFigures = {
    {"rank",
     {{"rank_entropy_q_post", "effective rank, queries"},
      {"rank_entropy_k_post", "effective rank, keys"},
      {"rank_entropy_k_pre", "keys before RoPE"},
      {"rank_entropy_v_pre", "effective rank, values"},
      {"logit_rank_90", "rank of the scores, 90 %"},
      {"weight_rank_90", "rank of the weights, 90 %"}}},
    {"frequency",
     {{"concentration_q", "concentration, queries"},
      {"concentration_k", "concentration, keys"},
      {"frequency_use_entropy", "entropy of use (nats)"},
      {"frequency_use_slow", "share of slow pairs"},
      {"massive_q", "largest dimension, queries"},
      {"massive_k", "largest dimension, keys"}}},
    {"distance",
     {{"distance_preference_r", "preference and attention, {/:Italic r}"},
      {"decay_exponent", "decay exponent"},
      {"distance_share", "share of distance"},
      {"key_share", "share of the key"},
      {"query_share", "share of the query"},
      {"symbolic_score", "symbolic score"},
      {"positional_score", "positional score"}}},
    {"sinks", {{"sink_fraction", "queries at the first token"}}}};

// Adds a panel with a line for RoPE and a line for NoPE layers; columns without values are skipped.
void add_panel(const AnalysisResults& results, const GeometryPanel& panel, TrajectoryTable& table,
               std::vector<TrajectoryPanel>& panels, std::vector<PlotSeries>& legend) {
  const ResultFrame& frame = results.frame("geometry");
  if (!frame.has(panel.column)) return;
  std::vector<PlotSeries> series;
  for (const std::string rope : {"rope", "nope"}) {
    const auto heads = frame.group_by_run(
        panel.column, [&](std::size_t row) { return frame.text_column("rope")[row] == rope; });
    if (std::ranges::all_of(heads, [](const auto& values) { return values.empty(); })) continue;
    const bool nope = rope == "nope";
    const LegendEntry look = {nope ? "NoPE layers" : "RoPE layers",
                              nope ? style::kNope : style::kRope,
                              nope ? style::kDiamond : style::kCircle};
    series.push_back(
        table.add_measure({fmt::format("{}_{}", rope, panel.column),
                           SummaryStatistic::mean_and_quartiles, look, panel.column, rope},
                          heads));
  }
  if (series.empty()) return;
  panels.push_back({panel.label, "set yrange [*:*]\n", plot_series(series, results.runs().size())});
  if (series.size() > legend.size()) legend = series;
}

Figure geometry_over_runs(const AnalysisResults& results, const GeometryFigure& row) {
  TrajectoryTable table(results);
  std::vector<TrajectoryPanel> panels;
  std::vector<PlotSeries> legend;
  for (const auto& panel : row.panels) add_panel(results, panel, table, panels, legend);
  if (panels.empty()) return empty_figure("the runs have no column of this question");
  const auto question = std::ranges::find_if(geometry_questions(), [&](const auto& known) {
    return std::string_view(known.name) == row.question;
  });
  Figure figure;
  figure.title = question->title;
  figure.question = row.question;
  figure.caption = fmt::format(
      "{} Per run, heads of RoPE layers (circles) and of NoPE layers (diamonds) apart: mean over "
      "heads, band between the quartiles. Dashed lines separate phases.{}",
      question->sentence, table.error_bars_note());
  return table.draw(std::move(figure), panels,
                    {.panel_height = 1.25,
                     .columns = panels.size() > 1 ? 2 : 1,
                     .legend = legend_entries(legend)});
}

}  // namespace

std::vector<FigureKind> geometry_over_runs_kinds() {
  std::vector<FigureKind> kinds;
  for (const auto& row : kGeometryFigures)
    kinds.push_back(
        {fmt::format("geometry_{}", row.question),
         {"geometry"},
         [&row](const AnalysisResults& results) { return geometry_over_runs(results, row); },
         RunCountRequirement::several});
  return kinds;
}

}  // namespace qkscope
