// Histograms of the main measures over the heads of one model.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"
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

constexpr int kHistogramBins = 24;

// Values of one column by layer kind. `rope` includes heads whose layer kind is unknown.
struct RopeAndNopeValues {
  std::vector<double> rope;
  std::vector<double> nope;
  std::vector<double> all;
};

RopeAndNopeValues split_column_by_rope(const ResultFrame& frame, const std::string& column,
                                       bool absolute) {
  const auto& from = frame.real_column(column);
  RopeAndNopeValues values;
  for (std::size_t row = 0; row < frame.rows(); ++row)
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

std::string draw_histogram(const FigureKind& kind, std::size_t index, const HistogramPanel& panel,
                           bool any_nope) {
  const double low = panel.bins.low * panel.scale;
  const double high = panel.bins.high * panel.scale;
  std::int64_t tallest = 1;
  for (std::size_t bin = 0; bin < panel.rope.size(); ++bin)
    tallest = std::max(tallest, panel.rope[bin] + panel.nope[bin]);
  const auto top = static_cast<double>(tallest);
  std::string text =
      kind.fill("panel", fmt::arg("low", low), fmt::arg("high", high),
                fmt::arg("x_step", nice_tick_step(high - low, 3)), fmt::arg("top", 1.08 * top),
                fmt::arg("y_step", integer_tick_step(top, 3)));
  for (const auto& [x, dash] : {std::pair(panel.mean, 1), std::pair(panel.null, 3)})
    if (!std::isnan(x))
      text += kind.fill("line", fmt::arg("x", x * panel.scale), fmt::arg("dash", dash));
  const auto boxes = [&](const char* from, const char* to, const char* colour) {
    return kind.fill("boxes", fmt::arg("panel", index), fmt::arg("half", 0.5 * panel.scale),
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
    if (!results.has(measure.table)) continue;
    const ResultFrame& frame = results.frame(measure.table);
    if (measure.optional && !frame.has(measure.column)) continue;
    const auto values = split_column_by_rope(frame, measure.column, measure.absolute);
    if (values.all.empty()) continue;
    const auto bins = histogram_bins(measure.range, values.all);
    const double null = frame.has(measure.null_column)
                            ? mean_of(split_column_by_rope(frame, measure.null_column, false).all)
                            : kNan;
    panels.push_back({measure.column, measure.title, bins, bins.count_values(values.rope),
                      bins.count_values(values.nope), mean_of(values.all), null,
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

Table histogram_table(const std::vector<HistogramPanel>& panels) {
  Table table = empty_table(
      "integer panel, real low, real high, integer heads, integer nope_heads, real mean, real "
      "null, text measure");
  for (std::size_t i = 0; i < panels.size(); ++i)
    for (int bin = 0; bin < kHistogramBins; ++bin) {
      const auto& p = panels[i];
      const auto place = static_cast<std::size_t>(bin);
      table.add({as_integer_cell(i), p.bins.edge(bin), p.bins.edge(bin + 1), p.rope[place],
                 p.nope[place], p.mean, p.null, p.column});
    }
  return table;
}

}  // namespace

Figure distributions(const AnalysisResults& results, const FigureKind& kind) {
  const auto panels = histogram_panels(results, kind.keys.at("panels"));
  if (panels.empty()) return {};
  const bool nope = std::ranges::any_of(panels, &HistogramPanel::any_nope);
  const bool null = std::ranges::any_of(panels, [](const auto& p) { return !std::isnan(p.null); });
  Figure figure;
  figure.data = histogram_table(panels);
  auto options = grid_options(kind, panels.size());
  options.top = nope ? 0.36 : 0.2;
  const PanelGrid grid(options);
  figure.caption = kind.fill(
      "caption", results.run_title(),
      null ? "; dotted line: what positions without relation to the vectors would give (mean |r|)"
           : "",
      nope ? " Heads of NoPE layers are stacked on those of RoPE layers." : "");
  grid.draw(figure, (nope ? grid.legend(rope_nope_legend()) : "") + "unset grid\n",
            [&](std::size_t i) {
              return PanelGrid::Panel{panels[i].title, draw_histogram(kind, i, panels[i], nope)};
            });
  return figure;
}

}  // namespace qkscope
