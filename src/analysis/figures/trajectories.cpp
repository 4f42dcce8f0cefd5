// Figures of measures over the runs of a sweep. figures.yaml lists the panels of each figure and
// the result column of every line in a panel. Columns of the table `geometry` have one figure per
// question, with one line for RoPE and one for NoPE layers.
#include <algorithm>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"
#include "analysis/results/geometry_columns.h"
#include "base/core/error.h"
#include "base/core/numbers.h"

namespace qkscope {

NLOHMANN_JSON_SERIALIZE_ENUM(SummaryStatistic,
                             {{SummaryStatistic::mean, "mean"},
                              {SummaryStatistic::mean_and_deviation, "mean_and_deviation"},
                              {SummaryStatistic::mean_and_quartiles, "mean_and_quartiles"},
                              {SummaryStatistic::median_and_quartiles, "median_and_quartiles"}})

struct LineSpec {
  std::string table;
  std::string column;
  std::string legend;
  std::string look = "accent";
  std::string null_column;  // the same measure with shuffled positions: a dotted line
  bool absolute = false;
  std::string divisor;   // the line shows column / divisor
  std::string name;      // of the CSV columns; default: the column, with abs_ for |column|
  std::string quantity;  // in errors.parquet; default: the name

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(LineSpec, table, column, legend, look, null_column,
                                              absolute, divisor, name, quantity)
};

struct PanelSpec {
  std::string label;     // gnuplot markup
  std::string settings;  // ranges and ticks
  std::vector<LineSpec> lines;
  std::string unit;            // the axis is scaled by a power of ten and names its unit
  bool shade_between = false;  // shade the gap between the first two lines

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(PanelSpec, label, settings, lines, unit,
                                              shade_between)
};

namespace {

LegendEntry legend_entry(const LineSpec& line) {
  if (line.look == "query") return {line.legend, style::kQuery, style::kCircle};
  if (line.look == "key") return {line.legend, style::kKey, style::kSquare};
  if (line.look == "late") return {line.legend, style::kNope, style::kSquare};
  return {line.legend, style::kAccent, style::kCircle};
}

// Returns the values of a line, shape (rows); NaN where the divisor column is 0.
std::vector<double> line_values(const ResultFrame& frame, const LineSpec& line) {
  auto values = frame.real_column(line.column);
  if (line.absolute) values = absolute_values(std::move(values));
  if (line.divisor.empty()) return values;
  const auto& divisors = frame.real_column(line.divisor);
  for (std::size_t row = 0; row < values.size(); ++row)
    values[row] = divisors[row] == 0 ? kNan : values[row] / divisors[row];
  return values;
}

RunGroups group_heads(const ResultFrame& frame, const std::vector<double>& values) {
  return frame.group_by_run(values, [&](std::size_t row) { return frame.is_first_component(row); });
}

// Adds the CSV columns of one panel to `table` and its plotted series to `all_series`.
TrajectoryPanel make_panel(const AnalysisResults& results, const FigureKind& kind,
                           const PanelSpec& panel, TrajectoryTable& table,
                           std::vector<PlotSeries>& all_series) {
  std::vector<PlotSeries> series;
  RunGroups groups;  // of all lines
  for (const auto& line : panel.lines) {
    const ResultFrame& frame = results.frame(line.table);
    const auto of_line = group_heads(frame, line_values(frame, line));
    const std::string name =
        line.name.empty() ? (line.absolute ? "abs_" : "") + line.column : line.name;
    series.push_back(
        table.add_measure({name, kind.keys.at("summary").get<SummaryStatistic>(),
                           legend_entry(line), line.quantity.empty() ? name : line.quantity},
                          of_line));
    groups.insert(groups.end(), of_line.begin(), of_line.end());
  }
  all_series.insert(all_series.end(), series.begin(), series.end());
  std::string below;
  for (const auto& line : panel.lines) {
    const ResultFrame& frame = results.frame(line.table);
    if (!frame.has(line.null_column)) continue;
    const auto null = group_heads(frame, frame.real_column(line.null_column));
    below += fmt::format("  data using 1:{} with lines lw 0.9 dt 3 lc rgb '{}', \\\n",
                         table.add(line.null_column, mean_by_run(null)),
                         panel.lines.size() > 1 ? legend_entry(line).colour : style::kInk);
  }
  if (panel.shade_between)
    below +=
        fmt::format("  data using 1:{}:{} with filledcurves fill solid noborder lc rgb '{}', \\\n",
                    series[0].middle.substr(1), series[1].middle.substr(1), style::kHair);
  const auto unit = panel.unit.empty() ? AxisUnit() : choose_axis_unit(groups, panel.unit);
  return {panel.unit.empty() ? panel.label : fmt::format("{} ({})", panel.label, unit.text),
          panel.settings,
          kind.keys.value("whiskers", false)
              ? plot_whiskers(series, unit.scale, below)
              : plot_series(series, results.runs().size(), unit.scale, below),
          !panel.shade_between &&
              std::ranges::all_of(groups, [](const auto& group) { return group.empty(); })};
}

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
    const auto look = rope_nope_legend()[rope == "rope" ? 0 : 1];
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

Figure trajectory(const AnalysisResults& results, const FigureKind& kind) {
  TrajectoryTable table(results);
  std::vector<PlotSeries> series;
  std::vector<TrajectoryPanel> panels;
  bool null = false;
  for (const auto& panel : kind.keys.at("panels").get<std::vector<PanelSpec>>()) {
    panels.push_back(make_panel(results, kind, panel, table, series));
    for (const auto& line : panel.lines)
      null = null || results.frame(line.table).has(line.null_column);
  }
  Figure figure;
  figure.caption =
      kind.text("caption") + table.error_bars_note() + (null ? kind.text("null_note") : "");
  const TrajectoryLayout layout{.panel_height = kind.keys.value("panel_height", 1.7),
                                .columns = kind.keys.value("columns", 1),
                                .legend = legend_entries(series)};
  return table.draw(std::move(figure), panels, layout);
}

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
