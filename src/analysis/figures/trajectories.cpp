// Figures of measures over the runs of a sweep. A static table describes each figure: its panels,
// and the result column of every line in a panel.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"
#include "base/core/error.h"
#include "base/core/numbers.h"

namespace qkscope {
namespace {

struct LineSpec {
  const char* table;
  const char* column;
  LegendEntry look = {"", style::kAccent, style::kCircle};
  const char* null_column = "";  // the same measure with shuffled positions: a dotted line
  bool absolute = false;
  const char* divisor = "";    // the line shows column / divisor
  const char* name = nullptr;  // of the CSV columns; default: the column, with abs_ for |column|
  const char* quantity = nullptr;  // in errors.parquet; default: the name
};

struct PanelSpec {
  const char* label;     // gnuplot markup
  std::string settings;  // ranges and ticks
  std::vector<LineSpec> lines;
  const char* unit = "";       // the axis is scaled by a power of ten and names its unit
  bool shade_between = false;  // shade the gap between the first two lines
};

struct Trajectory {
  const char* name;
  const char* title;
  const char* caption;
  std::vector<PanelSpec> panels;
  SummaryStatistic summary;
  TrajectoryLayout layout = {};
  bool whiskers = false;  // points with whiskers instead of lines with bands
  const char* null_note = "";
};

constexpr char kCorrelationRange[] = "set yrange [*<0:1.02]\nset ytics 0.2\n";
constexpr char kShareRange[] = "set yrange [0:1.02]\n";
constexpr char kFreeRange[] = "set yrange [*:*]\n";

const LegendEntry kNoTitle = {"", style::kAccent, style::kCircle};

// Figures over runs that only plot columns of result tables.
const std::vector<Trajectory> kTrajectories = {
    {"position_signal",
     "Position signal on the first component",
     "Correlation with position of queries (r_q, blue circles) and keys (r_k, red squares) "
     "projected on the first combined principal component: mean over heads, band of one standard "
     "deviation (ddof 1). Dashed lines separate phases. r_k keeps its sign; components point "
     "where r_q is positive.",
     {{"correlation with position",
       kCorrelationRange,
       {{"qk", "r_q", {"queries, {/:Italic r}_q", style::kQuery, style::kCircle}, "r_q_null"},
        {"qk", "r_k", {"keys, {/:Italic r}_k", style::kKey, style::kSquare}, "r_k_null"}}}},
     SummaryStatistic::mean_and_deviation,
     {},
     false,
     " Dotted lines: mean |r| that positions without relation to the vectors would give."},
    {"explained_variance",
     "Explained variance",
     "Share of the variance of a head's pooled queries and keys on the first principal "
     "component: mean over heads, band of one standard deviation. Dashed lines separate phases.",
     {{"share of variance on PC0",
       "set yrange [0:*]\n",
       {{.table = "qk",
         .column = "explained_variance",
         .name = "pc0",
         .quantity = "pc0_variance"}}}},
     SummaryStatistic::mean_and_deviation},
    {"rotation_trajectory",
     "Planar rotation over training",
     "Per run: |r_k_a| (correlation of keys with position along a), separation_strength, "
     "bias_strength (mu_q_a alpha_k, per token) and plane_var_fraction (share of variance in the "
     "(a, b) plane). Mean over heads, band between the quartiles.",
     {{"|{/:Italic r}_k| along {/:Italic a}",
       kShareRange,
       {{"rotated", "r_k_a", kNoTitle, "r_k_a_null", true}}},
      {"separation", kShareRange, {{"rotated", "separation_strength"}}},
      {"mean bias", kFreeRange, {{"rotated", "bias_strength"}}, "per token"},
      {"variance in plane", kShareRange, {{"rotated", "plane_var_fraction"}}}},
     SummaryStatistic::mean_and_quartiles,
     {.panel_height = 1.35, .columns = 2},
     false,
     " Dotted line: mean |r_k_a| after shuffling positions."},
    {"bias_decomposition",
     "What the positional bias is made of",
     "mu_q_a (mean of the queries along a), alpha_k (slope of the keys along a, per token) and "
     "their product, the bias strength. Mean over heads, band between the quartiles.",
     {{"{/:Italic μ}_{q,a}", kFreeRange, {{"rotated", "mu_q_a"}}, "length"},
      {"{/:Italic α}_k", kFreeRange, {{"rotated", "alpha_k"}}, "per token"},
      {"{/:Italic μ}_{q,a} {/:Italic α}_k",
       kFreeRange,
       {{"rotated", "bias_strength"}},
       "per token"}},
     SummaryStatistic::mean_and_quartiles,
     {.panel_height = 1.15}},
    {"plasticity_trajectory",
     "Plasticity at the beginning and the end of the context",
     "Above: attention plasticity averaged over the first (ap_first20) and the last fifth "
     "(ap_last20) of query positions, means over heads; the gap between them is shaded. "
     "Below: mean bias strength (mu_q_a alpha_k, per token). Dashed lines separate phases.",
     {{"attention plasticity",
       "set yrange [0:1]\nset ytics 0.2\n",
       {{"head_metrics", "ap_first20", {"first 20 % of positions", style::kQuery, style::kCircle}},
        {"head_metrics", "ap_last20", {"last 20 %", style::kNope, style::kSquare}}},
       "",
       true},
      {"mean bias",
       "set yrange [*<0:*]\nset ytics autofreq\n",
       {{"rotated", "bias_strength"}},
       "per token"}},
     SummaryStatistic::mean,
     {.panel_height = 1.35}},
    {"drift_correlations",
     "Correlation with position along the drift",
     "Correlation with position of queries (blue circles) and keys (red squares) along a, the "
     "direction of covariance with position. Mean over heads, whiskers from the lower to the "
     "upper quartile.",
     {{"correlation along {/:Italic a}",
       kCorrelationRange,
       {{"rotated", "r_q_a", {"queries", style::kQuery, style::kCircle}, "r_q_a_null"},
        {"rotated", "r_k_a", {"keys", style::kKey, style::kSquare}, "r_k_a_null"}}}},
     SummaryStatistic::mean_and_quartiles,
     {},
     true,
     " Dotted lines: mean |r| after shuffling positions."},
    {"bias_strength",
     "Strength of the positional bias",
     "bias_strength = mu_q_a alpha_k: how much a key's score changes per token of its position, "
     "for the mean query. Mean over heads, whiskers from the lower to the upper quartile.",
     {{"mean bias", "set yrange [*<0:*]\n", {{"rotated", "bias_strength"}}, "per token"}},
     SummaryStatistic::mean_and_quartiles,
     {},
     true},
    {"slope_ratio",
     "Drift of keys over drift of queries",
     "alpha_k / alpha_q: the slope of keys on position along a over that of queries. 1 (dashed) "
     "where both drift alike. Median over heads (a few heads that hardly drift would carry a "
     "mean away), whiskers from the lower to the upper quartile.",
     {{"median {/:Italic α}_k / {/:Italic α}_q",
       fmt::format("set yrange [*<0:1.2<*]\nset arrow from graph 0, first 1 to graph 1, first 1 "
                   "nohead dt 2 lw 0.6 lc rgb '{}' back\n",
                   style::kInk),
       {{.table = "rotated",
         .column = "alpha_k",
         .divisor = "alpha_q",
         .name = "slope_ratio",
         .quantity = "signed_slope_ratio_median"}}}},
     SummaryStatistic::median_and_quartiles,
     {},
     true}};

// Returns the values of a line, shape (rows); NaN where the divisor column is 0.
std::vector<double> line_values(const ResultFrame& frame, const LineSpec& line) {
  auto values = frame.real_column(line.column);
  if (line.absolute) values = absolute_values(std::move(values));
  if (std::string_view(line.divisor).empty()) return values;
  const auto& divisors = frame.real_column(line.divisor);
  for (std::size_t row = 0; row < values.size(); ++row)
    values[row] = divisors[row] == 0 ? kNan : values[row] / divisors[row];
  return values;
}

RunGroups group_heads(const ResultFrame& frame, const std::vector<double>& values) {
  return frame.group_by_run(values, [&](std::size_t row) { return frame.is_first_component(row); });
}

// Adds the CSV columns of one panel to `table` and its plotted series to `all_series`.
TrajectoryPanel make_panel(const AnalysisResults& results, const Trajectory& figure,
                           const PanelSpec& panel, TrajectoryTable& table,
                           std::vector<PlotSeries>& all_series) {
  std::vector<PlotSeries> series;
  RunGroups groups;  // of all lines
  for (const auto& line : panel.lines) {
    const ResultFrame& frame = results.frame(line.table);
    const auto of_line = group_heads(frame, line_values(frame, line));
    const std::string name =
        line.name ? line.name : (line.absolute ? "abs_" : "") + std::string(line.column);
    series.push_back(table.add_measure(
        {name, figure.summary, line.look, line.quantity ? line.quantity : name}, of_line));
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
                         panel.lines.size() > 1 ? line.look.colour : style::kInk);
  }
  if (panel.shade_between)
    below +=
        fmt::format("  data using 1:{}:{} with filledcurves fill solid noborder lc rgb '{}', \\\n",
                    series[0].middle.substr(1), series[1].middle.substr(1), style::kHair);
  const std::string unit_name = panel.unit;
  const auto unit = unit_name.empty() ? AxisUnit() : choose_axis_unit(groups, unit_name);
  return {unit_name.empty() ? panel.label : fmt::format("{} ({})", panel.label, unit.text),
          panel.settings,
          figure.whiskers ? plot_whiskers(series, unit.scale, below)
                          : plot_series(series, results.runs().size(), unit.scale, below),
          !panel.shade_between &&
              std::ranges::all_of(groups, [](const auto& group) { return group.empty(); })};
}

Figure draw_trajectory(const AnalysisResults& results, const Trajectory& row) {
  TrajectoryTable table(results);
  std::vector<PlotSeries> series;
  std::vector<TrajectoryPanel> panels;
  bool null = false;
  for (const auto& panel : row.panels) {
    panels.push_back(make_panel(results, row, panel, table, series));
    for (const auto& line : panel.lines)
      null = null || results.frame(line.table).has(line.null_column);
  }
  Figure figure;
  figure.title = row.title;
  figure.caption = row.caption + table.error_bars_note() + (null ? row.null_note : "");
  TrajectoryLayout layout = row.layout;
  layout.legend = legend_entries(series);
  return table.draw(std::move(figure), panels, layout);
}

}  // namespace

FigureKind find_trajectory_figure(std::string_view name) {
  const auto row = std::ranges::find(kTrajectories, name, &Trajectory::name);
  QKSCOPE_ASSERT(row != kTrajectories.end());
  std::set<std::string> tables;
  for (const auto& panel : row->panels)
    for (const auto& line : panel.lines) tables.insert(line.table);
  return {row->name,
          {tables.begin(), tables.end()},
          [row](const AnalysisResults& results) { return draw_trajectory(results, *row); },
          RunCountRequirement::several};
}

}  // namespace qkscope
