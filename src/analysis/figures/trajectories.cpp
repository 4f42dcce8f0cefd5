// Figures over the runs of a sweep: head classes, variance, RoPE against NoPE layers, and measures.
// figures.yaml lists the panels of a figure of measures and the result column of every line in a
// panel. Columns of `geometry` have one figure per group, with lines for RoPE and NoPE layers.
#include <algorithm>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/results/results_folder.h"
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
  std::string null_column;  // the measure with shuffled positions, as a dotted line
  bool absolute = false;
  std::string divisor;   // the line shows column / divisor
  std::string name;      // prefix of CSV columns; default: `column`, or abs_COLUMN if `absolute`
  std::string quantity;  // name in errors.parquet; default: `name`

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

// Returns the values of a plotted line, shape (rows); NaN where the divisor column is 0.
std::vector<double> plotted_values(const ResultFrame& frame, const LineSpec& line) {
  auto values = frame.real_column(line.column);
  if (line.absolute) values = absolute_values(std::move(values));
  if (line.divisor.empty()) return values;
  const auto& divisors = frame.real_column(line.divisor);
  for (std::size_t row = 0; row < values.size(); ++row)
    values[row] = divisors[row] == 0 ? kNan : values[row] / divisors[row];
  return values;
}

// Adds the CSV columns of one panel to `table` and its plotted series to `all_series`.
TrajectoryPanel make_trajectory_panel(const AnalysisResults& results, const FigureKind& kind,
                                      const PanelSpec& panel, TrajectoryTable& table,
                                      std::vector<PlotSeries>& all_series) {
  std::vector<PlotSeries> series;
  HeadValuesByRun groups;  // values of all lines
  for (const auto& line : panel.lines) {
    const ResultFrame& frame = results.frame(line.table);
    const auto is_first = [&](std::size_t row) { return frame.is_first_component(row); };
    const auto of_line = frame.group_by_run(plotted_values(frame, line), is_first);
    const std::string name =
        line.name.empty() ? (line.absolute ? "abs_" : "") + line.column : line.name;
    series.push_back(
        table.add_measure_series({name, kind.keys.at("summary").get<SummaryStatistic>(),
                                  legend_entry(line), line.quantity.empty() ? name : line.quantity},
                                 of_line));
    groups.insert(groups.end(), of_line.begin(), of_line.end());
  }
  all_series.insert(all_series.end(), series.begin(), series.end());
  std::string below;
  for (const auto& line : panel.lines) {
    const ResultFrame& frame = results.frame(line.table);
    if (!frame.has_column(line.null_column)) continue;
    const auto null = frame.group_by_run(
        line.null_column, [&](std::size_t row) { return frame.is_first_component(row); });
    below += fmt::format("  data using 1:{} with lines lw 0.9 dt 3 lc rgb '{}', \\\n",
                         table.add_column(line.null_column, mean_by_run(null)),
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
              ? whisker_plot_command(series, unit.scale, below)
              : line_plot_command(series, results.runs().size(), unit.scale, below),
          !panel.shade_between &&
              std::ranges::all_of(groups, [](const auto& group) { return group.empty(); })};
}

// Adds a panel with one line for RoPE layers and one for NoPE layers; skips columns without values.
void add_rope_nope_panel(const AnalysisResults& results, const Json& panel, TrajectoryTable& table,
                         std::vector<TrajectoryPanel>& panels, std::vector<PlotSeries>& legend) {
  const ResultFrame& frame = results.frame("geometry");
  const std::string column = panel.at("column");
  if (!frame.has_column(column)) return;
  std::vector<PlotSeries> series;
  for (const std::string rope : {"rope", "nope"}) {
    const auto heads = frame.group_by_run(
        column, [&](std::size_t row) { return frame.text_column("rope")[row] == rope; });
    if (std::ranges::all_of(heads, [](const auto& values) { return values.empty(); })) continue;
    const auto look = rope_nope_legend_entries()[rope == "rope" ? 0 : 1];
    const TrajectoryMeasure measure{fmt::format("{}_{}", rope, column),
                                    SummaryStatistic::mean_and_quartiles, look, column, rope};
    series.push_back(table.add_measure_series(measure, heads));
  }
  if (series.empty()) return;
  panels.push_back(
      {panel.at("label"), "set yrange [*:*]\n", line_plot_command(series, results.runs().size())});
  if (series.size() > legend.size()) legend = series;
}

// Counts the heads of each class. The table has no rows if no head has a class.
Table class_count_table(const ResultFrame& heads) {
  const auto& classes = heads.text_column("class");
  Table table =
      empty_table("integer row, integer heads, integer nope_heads, real fraction, text class");
  const auto total = std::ranges::count_if(classes, [](const auto& name) { return !name.empty(); });
  if (total == 0) return table;
  for (const auto& c : style::kClasses) {
    const auto here = std::ranges::count(classes, c.name);
    std::int64_t without = 0;
    for (std::size_t i = 0; i < classes.size(); ++i)
      without += classes[i] == c.name && heads.is_nope(i) ? 1 : 0;
    table.add({table.rows(), here, without, static_cast<double>(here) / static_cast<double>(total),
               std::string(c.name)});
  }
  return table;
}

}  // namespace

Figure draw_trajectory(const AnalysisResults& results, const FigureKind& kind) {
  TrajectoryTable table(results);
  std::vector<PlotSeries> series;
  std::vector<TrajectoryPanel> panels;
  bool null = false;
  for (const auto& panel : kind.keys.at("panels").get<std::vector<PanelSpec>>()) {
    panels.push_back(make_trajectory_panel(results, kind, panel, table, series));
    for (const auto& line : panel.lines)
      null = null || results.frame(line.table).has_column(line.null_column);
  }
  Figure figure;
  figure.caption =
      kind.text("caption") + table.error_bars_note() + (null ? kind.text("null_note") : "");
  const TrajectoryLayout layout{.panel_height = kind.keys.value("panel_height", 1.7),
                                .columns = kind.keys.value("columns", 1),
                                .legend = legend_entries(series)};
  return table.draw(std::move(figure), panels, layout);
}

Figure draw_geometry_over_runs(const AnalysisResults& results, const FigureKind& kind) {
  TrajectoryTable table(results);
  std::vector<TrajectoryPanel> panels;
  std::vector<PlotSeries> legend;
  for (const auto& panel : kind.keys.at("panels"))
    add_rope_nope_panel(results, panel, table, panels, legend);
  if (panels.empty()) return make_empty_figure("the runs have no column of this question");
  const auto group = std::ranges::find(geometry_column_groups(), kind.text("question"),
                                       &GeometryColumnGroup::name);
  Figure figure;
  figure.title = group->title;
  figure.column_group = group->name;
  figure.caption = fmt::format(
      "{} Per run, heads of RoPE layers (circles) and of NoPE layers (diamonds) apart: mean over "
      "heads, band between the quartiles. Dashed lines separate phases.{}",
      group->sentence, table.error_bars_note());
  return table.draw(std::move(figure), panels,
                    {.panel_height = 1.25,
                     .columns = panels.size() > 1 ? 2 : 1,
                     .legend = legend_entries(legend)});
}

Figure draw_taxonomy_evolution(const AnalysisResults& results, const FigureKind& kind) {
  TrajectoryTable table(results);
  std::string plots = "plot \\\n";
  std::vector<LegendEntry> legend;
  std::vector<double> total;  // heads with a class in each run
  for (const auto& c : style::kClasses) {
    const auto members = class_membership_by_run(results, c.name);
    total.clear();
    for (const auto& run : members) total.push_back(static_cast<double>(run.size()));
    legend.push_back({c.title, c.colour, style::kSquare});
    plots += fmt::format("  data using {} lc rgb '{}'{}\n",
                         table.add_column(c.name, mean_by_run(members)), c.colour,
                         &c == std::end(style::kClasses) - 1 ? "" : ", \\");
  }
  table.add_column("all_heads", total);
  Figure figure;
  figure.caption = kind.format("caption", kind.format("classes", taxonomy_bounds_text(results)));
  return table.draw(std::move(figure), {{"fraction of heads", kind.text("settings"), plots}},
                    {.legend = legend});
}

Figure draw_class_counts(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& heads = results.frame("taxonomy");
  const bool nope = heads.has_nope_rows();
  Figure figure;
  figure.data = class_count_table(heads);
  if (figure.data.rows() == 0) return {};
  std::int64_t total = 0;
  for (const auto count : figure.data.find("heads")->integers) total += count;
  std::string tics;
  std::string plot = "plot ";
  int row = 0;
  for (const auto& c : style::kClasses) {
    tics += fmt::format("{}'{}' {}", row > 0 ? ", " : "", c.title, -row);
    plot += kind.format("bars", fmt::arg("row", row++), fmt::arg("colour", c.colour)) + "\n  ";
  }
  figure.height = 1.5;
  figure.script = margin_commands(1.15, style::kColumn - 0.1, 0.36, 1.44) +
                  kind.format("script", fmt::arg("tics", tics), fmt::arg("bottom", 0.5 - row),
                              fmt::arg("right", 1.4 * static_cast<double>(total))) +
                  plot + (nope ? kind.format("nope_bars") + "\n  " : "") + kind.format("counts");
  figure.caption = kind.format("caption", results.run_title(),
                               kind.format("classes", taxonomy_bounds_text(results)),
                               nope ? " Hatched: heads of NoPE layers." : "");
  return figure;
}

Figure draw_explained_variance(const AnalysisResults& results, const FigureKind& kind) {
  if (!results.has_single_run()) return draw_trajectory(results, kind);
  const ResultFrame& qk = results.frame("qk");
  const auto& pcs = qk.integer_column("pc");
  Figure figure;
  figure.data = empty_table("integer pc, real mean, real std, integer heads");
  for (std::int64_t pc = 0; pc < 10; ++pc) {
    const auto values = qk.group_by_run("explained_variance", [&](std::size_t row) {
                            return pcs[row] == pc;
                          }).front();
    if (!values.empty())
      figure.data.add({pc, mean_of(values), standard_deviation_of(values), std::ssize(values)});
  }
  figure.script = kind.format("script_of_one");
  figure.caption = kind.text("caption_of_one");
  return figure;
}

Figure draw_variance_decomposition(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& rotated = results.frame("rotated");
  const auto a = mean_by_run(rotated.group_by_run("var_frac_a"));
  const auto b = mean_by_run(rotated.group_by_run("var_frac_b"));
  std::vector<double> rest;
  for (std::size_t i = 0; i < a.size(); ++i) rest.push_back(1 - a[i] - b[i]);
  TrajectoryTable table(results);
  table.add_column("var_frac_a", a);
  table.add_column("var_frac_b", b);
  table.add_column("rest", std::move(rest));
  const std::vector<LegendEntry> legend = {
      {"drift, {/:Italic a}", style::kQuery, style::kSquare},
      {"separation, {/:Italic b}", style::kNope, style::kSquare},
      {"rest", style::kHair, style::kSquare}};
  const auto plot = fmt::format(
      "plot data using 2 lc rgb '{}', data using 3 lc rgb '{}', data using 4 lc rgb '{}'\n",
      legend[0].colour, legend[1].colour, legend[2].colour);
  return table.draw({}, {{"share of variance", kind.text("settings"), plot}}, {.legend = legend});
}

Figure draw_nope_vs_rope(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& qk = results.frame("qk");
  const ResultFrame& metrics = results.frame("head_metrics");
  TrajectoryTable table(results);
  std::vector<PlotSeries> signal;
  std::vector<PlotSeries> plasticity;
  for (const std::string rope : {"rope", "nope"}) {
    const std::string title = rope == "nope" ? "NoPE" : "RoPE";
    const char* colour = rope == "nope" ? style::kNope : style::kRope;
    const auto group = [&](const ResultFrame& frame, const char* column) {
      return frame.group_by_run(column, [&](std::size_t row) {
        return frame.is_first_component(row) && frame.text_column("rope")[row] == rope;
      });
    };
    if (std::ranges::any_of(group(qk, "r_q"), [](const auto& heads) { return heads.empty(); }))
      return make_empty_figure("a run has only layers of one kind (RoPE or NoPE)");
    const auto add = [&](const ResultFrame& frame, const char* column, const char* name,
                         const LegendEntry& look) {
      return table.add_measure_series(
          {rope + name, SummaryStatistic::mean_and_deviation, look, column, rope},
          group(frame, column));
    };
    signal.push_back(add(qk, "r_q", "_r_q", {title + ", {/:Italic r}_q", colour, style::kCircle}));
    signal.push_back(add(qk, "r_k", "_r_k", {title + ", {/:Italic r}_k", colour, style::kSquare}));
    plasticity.push_back(
        add(metrics, "ap_profile_overall", "_ap", {title, colour, style::kCircle}));
  }
  Figure figure;
  figure.caption = kind.format("caption", table.error_bars_note());
  return table.draw(std::move(figure),
                    {{"correlation with position", "set yrange [*<0:1.02]\nset ytics 0.25\n",
                      line_plot_command(signal, results.runs().size())},
                     {"attention plasticity", "set yrange [0:1.02]\n",
                      line_plot_command(plasticity, results.runs().size())}},
                    {.panel_height = 1.35, .legend = legend_entries(signal)});
}

}  // namespace qkscope
