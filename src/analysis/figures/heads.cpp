// Scatter plots with one point per head, histograms of measures over heads, and means over heads by
// principal component, by depth and by dimension.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "base/core/numbers.h"

namespace qkscope {

struct HistogramMeasure {
  std::string table;
  std::string column;
  std::string title;
  std::string range;
  bool absolute = false;
  bool optional = false;
  std::string null_column;

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(HistogramMeasure, table, column, title, range,
                                              absolute, optional, null_column)
};

namespace {

// Logarithmic axis range of |values| in whole decades; ignores values below 1e-5 of the largest.
std::string log_axis_range(const std::vector<double>& values) {
  auto sizes = absolute_values(values);
  std::erase_if(sizes, [](double size) { return !(size > 0); });
  if (sizes.empty()) return "set yrange [1e-6:1]\n";
  const double largest = std::ranges::max(sizes);
  std::erase_if(sizes, [&](double size) { return !(size > 1e-5 * largest); });
  return fmt::format("set yrange [1e{}:1e{}]\n", std::floor(std::log10(std::ranges::min(sizes))),
                     std::ceil(std::log10(largest)));
}

// Returns the label of each row: "LAYER.HEAD" for outlier heads of a run, "" for all other heads.
std::vector<std::string> outlier_labels(const AnalysisResults& results, const ResultFrame& frame,
                                        const std::vector<std::size_t>& rows,
                                        const FigureKind& kind) {
  const auto& all_x = frame.real_column(kind.text("x"));
  const auto& all_y = frame.real_column(kind.text("y"));
  const bool log_y = kind.keys.value("log_y", false);          // the figure shows log10 |y|
  const std::size_t count = results.has_single_run() ? 5 : 3;  // more names overlap in small panels
  std::vector<std::string> names(rows.size());
  for (std::size_t run = 0; run < results.runs().size(); ++run) {
    std::vector<std::size_t> places;
    std::vector<double> x;
    std::vector<double> y;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double value = all_y[rows[i]];
      if (frame.run_indices()[rows[i]] != run || (log_y && value == 0)) continue;
      places.push_back(i);
      x.push_back(all_x[rows[i]]);
      y.push_back(log_y ? std::log10(std::fabs(value)) : value);
    }
    for (const auto i : find_outliers(x, y, count)) {
      const auto row = rows[places[i]];
      names[places[i]] = fmt::format("{}.{}", frame.nullable_integer_column("layer")[row],
                                     frame.nullable_integer_column("head")[row]);
    }
  }
  return names;
}

// Scatter plot data, one row per head: run, x, y, nope, layer, head, name (of outliers), model.
Table head_scatter_table(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& frame = results.frame(kind.tables.front());
  const auto& x = frame.real_column(kind.text("x"));
  const auto& y = frame.real_column(kind.text("y"));
  const auto& layers = frame.integer_column("layer");
  const auto& heads = frame.integer_column("head");
  Table table =
      empty_table(fmt::format("integer run, real {}, real {}, integer nope, integer layer, integer "
                              "head, text name, text model",
                              kind.text("x"), kind.text("y")));
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < frame.row_count(); ++row)
    if (frame.is_first_component(row) && !std::isnan(x[row]) && !std::isnan(y[row]))
      rows.push_back(row);
  const auto names = outlier_labels(results, frame, rows, kind);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = rows[i];
    table.add({as_integer_cell(frame.run_indices()[row]), x[row], y[row],
               std::int64_t{frame.is_nope(row)}, layers[row], heads[row], names[i],
               results.run_label(frame.run_indices()[row])});
  }
  return table;
}

// Draws a scatter plot with one panel per run. `settings` apply to all panels.
Figure draw_scatter(const AnalysisResults& results, const FigureKind& kind,
                    const std::string& settings) {
  const bool nope = results.frame(kind.tables.front()).has_nope_rows();
  auto options = grid_options(kind, results.runs().size());
  options.top = nope ? 0.36 : 0.22;
  const PanelGrid grid(options);
  Figure figure;
  figure.caption = kind.format("caption", taxonomy_bounds_text(results)) +
                   (nope ? " Diamonds are heads of NoPE layers." : "") +
                   " The heads farthest from the medians carry their names (layer.head).";
  figure.data = head_scatter_table(results, kind);
  grid.draw(figure, (nope ? grid.legend_commands(rope_nope_legend_entries()) : "") + settings,
            [&](std::size_t i) -> PanelGrid::Panel {
              const auto& run = results.runs()[i];
              return {run.title, kind.format("panel", fmt::arg("run", i), fmt::arg("low", run.low),
                                             fmt::arg("high", run.high))};
            });
  return figure;
}

constexpr int kDepthBins = 10;

using ValuesByRunAndColumn =
    std::map<std::pair<std::size_t, std::int64_t>, std::vector<double>>;  // (run, x)

// Heat map data with one row per cell: x, row index of the run, mean over heads, head count, model.
Table mean_heatmap_table(const AnalysisResults& results, const ValuesByRunAndColumn& cells,
                         const char* x, const char* mean) {
  Table table = empty_table(
      fmt::format("integer {}, integer row, real {}, integer heads, text model", x, mean));
  for (const auto& [place, heads] : cells)
    table.add({place.second, -as_integer_cell(place.first), mean_of(heads), std::ssize(heads),
               results.run_label(place.first)});
  return table;
}

// Returns the mean of a column over the heads in each tenth of the model depth.
Table depth_mean_table(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& frame = results.frame(kind.tables.front());
  const auto& values = frame.real_column(kind.text("column"));
  const bool absolute = kind.keys.value("absolute", false);
  const auto& layers = frame.integer_column("layer");
  std::vector<std::int64_t> last(results.runs().size(), 1);  // last layer with a head
  for (std::size_t row = 0; row < frame.row_count(); ++row)
    last[frame.run_indices()[row]] = std::max(last[frame.run_indices()[row]], layers[row]);
  ValuesByRunAndColumn cells;
  for (std::size_t row = 0; row < frame.row_count(); ++row) {
    if (!frame.is_first_component(row) || std::isnan(values[row])) continue;
    const auto run = frame.run_indices()[row];
    const auto bin = std::min<std::int64_t>(kDepthBins - 1, kDepthBins * layers[row] / last[run]);
    cells[{run, bin}].push_back(absolute ? std::fabs(values[row]) : values[row]);
  }
  return mean_heatmap_table(results, cells, "bin", "mean");
}

constexpr int kHistogramBins = 24;

// Values of one column in RoPE and NoPE layers. `rope` includes layers whose kind is unknown.
struct ValuesByRope {
  std::vector<double> rope;
  std::vector<double> nope;
  std::vector<double> all;
};

ValuesByRope split_column_by_rope(const ResultFrame& frame, const std::string& column,
                                  bool absolute) {
  const auto& from = frame.real_column(column);
  ValuesByRope values;
  for (std::size_t row = 0; row < frame.row_count(); ++row)
    if (!std::isnan(from[row]) && frame.is_first_component(row))
      (frame.is_nope(row) ? values.nope : values.rope)
          .push_back(absolute ? std::fabs(from[row]) : from[row]);
  values.all = values.rope;
  values.all.insert(values.all.end(), values.nope.begin(), values.nope.end());
  return values;
}

HistogramBins histogram_bins(const std::string& range, const std::vector<double>& values) {
  HistogramBins bins{.count = kHistogramBins};
  if (range == "signed_to_one" && std::ranges::min(values) < 0) bins.low = -1;
  if (range != "own") return bins;
  // Values below the 1st and above the 99th percentile are counted in the outermost bins.
  bins.low = std::min(0.0, quantile_of(values, 0.01));
  bins.high = std::max(0.0, quantile_of(values, 0.99));
  if (!(bins.high > bins.low)) bins.high = bins.low + 1;
  return bins;
}

struct HistogramPanel {
  std::string column;
  std::string title;
  HistogramBins bins;
  std::vector<std::int64_t> rope;  // (bins): number of heads
  std::vector<std::int64_t> nope;
  double mean;
  double null;       // NaN: unknown
  bool any_nope;     // some heads are on NoPE layers
  double scale = 1;  // factor of the axis
};

std::string histogram_commands(const FigureKind& kind, std::size_t index,
                               const HistogramPanel& panel, bool any_nope) {
  const double low = panel.bins.low * panel.scale;
  const double high = panel.bins.high * panel.scale;
  std::int64_t tallest = 1;
  for (std::size_t bin = 0; bin < panel.rope.size(); ++bin)
    tallest = std::max(tallest, panel.rope[bin] + panel.nope[bin]);
  const auto top = static_cast<double>(tallest);
  std::string text =
      kind.format("panel", fmt::arg("low", low), fmt::arg("high", high),
                  fmt::arg("x_step", nice_tick_step(high - low, 3)), fmt::arg("top", 1.08 * top),
                  fmt::arg("y_step", integer_tick_step(top, 3)));
  for (const auto& [x, dash] : {std::pair(panel.mean, 1), std::pair(panel.null, 3)})
    if (!std::isnan(x))
      text += kind.format("line", fmt::arg("x", x * panel.scale), fmt::arg("dash", dash));
  const auto boxes = [&](const char* from, const char* to, const char* colour) {
    return kind.format("boxes", fmt::arg("panel", index), fmt::arg("half", 0.5 * panel.scale),
                       fmt::arg("scale", panel.scale), fmt::arg("from", from), fmt::arg("to", to),
                       fmt::arg("colour", colour));
  };
  text += "plot " + boxes("0", "$4", style::kRope);
  if (any_nope) text += ", \\\n  " + boxes("$4", "$4 + $5", style::kNope);
  return text + "\n";
}

// Returns one panel per measure that the results contain.
std::vector<HistogramPanel> histogram_panels(const AnalysisResults& results, const Json& measures) {
  std::vector<HistogramPanel> panels;
  for (const auto& measure : measures.get<std::vector<HistogramMeasure>>()) {
    if (!results.has_table(measure.table)) continue;
    const ResultFrame& frame = results.frame(measure.table);
    if (measure.optional && !frame.has_column(measure.column)) continue;
    const auto values = split_column_by_rope(frame, measure.column, measure.absolute);
    if (values.all.empty()) continue;
    const auto bins = histogram_bins(measure.range, values.all);
    const double null = frame.has_column(measure.null_column)
                            ? mean_of(split_column_by_rope(frame, measure.null_column, false).all)
                            : kNan;
    panels.push_back({measure.column, measure.title, bins, bins.count_per_bin(values.rope),
                      bins.count_per_bin(values.nope), mean_of(values.all), null,
                      !values.nope.empty()});
    if (panels.back().column != "bias_strength") continue;
    // bias_strength is small, so its axis is scaled by a power of ten.
    const double scale = choose_axis_unit({values.all}, "").scale;
    panels.back().scale = scale;
    panels.back().title = scale == 1 ? "bias (per token)"
                                     : fmt::format("bias (1e{:.0f} per token)", -std::log10(scale));
  }
  return panels;
}

}  // namespace

Figure draw_rq_rk_scatter(const AnalysisResults& results, const FigureKind& kind) {
  return draw_scatter(results, kind, kind.text("settings"));
}

Figure draw_bias_vs_separation(const AnalysisResults& results, const FigureKind& kind) {
  const auto& biases = results.frame("rotated").real_column("bias_strength");
  return draw_scatter(results, kind, kind.text("settings") + log_axis_range(biases));
}

Figure draw_pc_roles(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& qk = results.frame("qk");
  const auto& pcs = qk.integer_column("pc");
  Figure figure;
  figure.data = empty_table(
      "integer run, integer pc, real r_q_mean, real r_q_std, real r_k_mean, real r_k_std, integer "
      "heads, text model");
  for (std::int64_t pc = 0; pc < 10; ++pc) {
    const auto take = [&](std::size_t row) { return pcs[row] == pc; };
    const auto r_q = qk.group_by_run("r_q", take);
    const auto r_k = qk.group_by_run("r_k", take);
    for (std::size_t i = 0; i < r_q.size(); ++i)
      if (!r_q[i].empty() || !r_k[i].empty())
        figure.data.add({as_integer_cell(i), pc, mean_of(r_q[i]), standard_deviation_of(r_q[i]),
                         mean_of(r_k[i]), standard_deviation_of(r_k[i]), std::ssize(r_q[i]),
                         results.run_label(i)});
  }
  const PanelGrid grid(grid_options(kind, results.runs().size()));
  const auto legend =
      grid.legend_commands({{"queries, {/:Italic r}_q", style::kQuery, style::kCircle},
                            {"keys, {/:Italic r}_k", style::kKey, style::kSquare}});
  grid.draw(figure, legend + kind.text("settings"), [&](std::size_t i) -> PanelGrid::Panel {
    return {results.runs()[i].title, kind.format("panel", fmt::arg("run", i))};
  });
  return figure;
}

Figure draw_layer_heatmap(const AnalysisResults& results, const FigureKind& kind) {
  static const std::map<std::string, std::span<const char* const>> kColours = {
      {"blues", style::kBlues}, {"reds", style::kReds}, {"around_zero", style::kAroundZero}};
  const bool around_zero = kind.text("colours") == "around_zero";
  Figure figure;
  figure.data = depth_mean_table(results, kind);
  if (figure.data.rows() == 0) return {};
  figure.height =
      0.62 + 0.2 * static_cast<double>(results.runs().size()) + (around_zero ? 0.16 : 0);
  figure.script = gnuplot_palette_command(kColours.at(kind.text("colours"))) +
                  y_axis_commands_for_runs(results) + kind.text("script");
  std::string dark = "$3 >= 0.5";
  if (around_zero) {
    const auto& means = figure.data.find("mean")->reals;
    const auto unit = choose_axis_unit({means}, "per token");
    const double largest = std::ranges::max(absolute_values(means));
    const double top = largest > 0 ? largest : 1;
    dark = fmt::format("abs($3) > {}", 0.7 * top);
    figure.script += kind.format("around_zero", fmt::arg("top", top), fmt::arg("unit", unit.text),
                                 fmt::arg("scale", unit.scale));
  } else {
    figure.script += kind.text("to_one");
  }
  figure.script +=
      kind.format("plot", fmt::arg("cells", heatmap_plot_clause(1, 2, 3)), fmt::arg("dark", dark));
  figure.caption =
      kind.format("caption", kind.text("what"),
                  around_zero ? "Red is above 0, blue below, white 0" : "Colours run from 0 to 1");
  return figure;
}

Figure draw_component_weights(const AnalysisResults& results, const FigureKind& kind) {
  Figure figure;
  const ResultFrame& weights = results.frame("head_component_weights");
  const auto& values = weights.real_column("component_weight");
  const auto& components = weights.integer_column("component");
  ValuesByRunAndColumn cells;
  for (std::size_t row = 0; row < weights.row_count(); ++row)
    if (!std::isnan(values[row]))
      cells[{weights.run_indices()[row], components[row]}].push_back(values[row]);
  figure.data = mean_heatmap_table(results, cells, "dimension", "mean_share");
  if (results.has_single_run()) {
    figure.script =
        kind.format("script_of_one", fmt::arg("right", std::ranges::max(components) + 1));
    return figure;
  }
  figure.height = 0.62 + 0.2 * static_cast<double>(results.runs().size());
  figure.script = gnuplot_palette_command(style::kGreens) + y_axis_commands_for_runs(results) +
                  kind.format("script") + heatmap_plot_clause(1, 2, 3) + "\n";
  return figure;
}

Figure draw_distributions(const AnalysisResults& results, const FigureKind& kind) {
  const auto panels = histogram_panels(results, kind.keys.at("panels"));
  if (panels.empty()) return {};
  const bool nope = std::ranges::any_of(panels, &HistogramPanel::any_nope);
  const bool null = std::ranges::any_of(panels, [](const auto& p) { return !std::isnan(p.null); });
  Figure figure;
  figure.data = empty_table(
      "integer panel, real low, real high, integer heads, integer nope_heads, real mean, real "
      "null, text measure");
  for (std::size_t i = 0; i < panels.size(); ++i)
    for (int bin = 0; bin < kHistogramBins; ++bin) {
      const auto& p = panels[i];
      const auto place = static_cast<std::size_t>(bin);
      figure.data.add({as_integer_cell(i), p.bins.lower_edge(bin), p.bins.lower_edge(bin + 1),
                       p.rope[place], p.nope[place], p.mean, p.null, p.column});
    }
  auto options = grid_options(kind, panels.size());
  options.top = nope ? 0.36 : 0.2;
  const PanelGrid grid(options);
  figure.caption = kind.format(
      "caption", results.run_title(),
      null ? "; dotted line: what positions without relation to the vectors would give (mean |r|)"
           : "",
      nope ? " Heads of NoPE layers are stacked on those of RoPE layers." : "");
  grid.draw(
      figure, (nope ? grid.legend_commands(rope_nope_legend_entries()) : "") + "unset grid\n",
      [&](std::size_t i) {
        return PanelGrid::Panel{panels[i].title, histogram_commands(kind, i, panels[i], nope)};
      });
  return figure;
}

}  // namespace qkscope
