// Histograms of the main measures over the heads of one model.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"
#include "base/core/numbers.h"

namespace qkscope {
namespace {

constexpr int kHistogramBins = 24;

enum class HistogramRange { to_one, signed_to_one, own };

struct HistogramMeasure {
  const char* table;
  const char* column;
  const char* title;
  HistogramRange range;
  bool absolute = false;
  bool optional = false;         // older results do not have the column
  const char* null_column = "";  // the same measure with shuffled positions
};

constexpr HistogramMeasure kHistogramMeasures[] = {
    {"qk", "r_q", "r_q on PC0", HistogramRange::signed_to_one, false, false, "r_q_null"},
    {"qk", "r_k", "r_k on PC0", HistogramRange::signed_to_one, false, false, "r_k_null"},
    {"qk", "explained_variance", "share of variance on PC0", HistogramRange::to_one},
    {"rotated", "position_r", "|r| along a, pooled", HistogramRange::to_one, false, false,
     "position_r_null"},
    {"rotated", "r_k_a", "|r_k| along a", HistogramRange::to_one, true, false, "r_k_a_null"},
    {"rotated", "bias_strength", "bias", HistogramRange::own},
    {"rotated", "separation_strength", "separation", HistogramRange::to_one},
    {"rotated", "plane_var_fraction", "share of variance in (a, b)", HistogramRange::to_one},
    {"head_metrics", "ap_profile_overall", "plasticity", HistogramRange::to_one},
    {"head_metrics", "ap_first20", "plasticity, first 20 %", HistogramRange::to_one},
    {"head_metrics", "ap_last20", "plasticity, last 20 %", HistogramRange::to_one},
    {"head_metrics", "ap_drop", "drop of plasticity", HistogramRange::own},
    {"head_metrics", "ap_free_overall", "plasticity, model-free", HistogramRange::to_one, false,
     true}};

// Values of one column. `rope` includes heads whose layer kind is unknown.
struct HeadValues {
  std::vector<double> rope;
  std::vector<double> nope;
  std::vector<double> all;
};

HeadValues head_values(const ResultFrame& frame, const char* column, bool absolute) {
  const auto& from = frame.real_column(column);
  HeadValues values;
  for (std::size_t row = 0; row < frame.rows(); ++row)
    if (!std::isnan(from[row]) && frame.is_first_component(row))
      (frame.is_nope(row) ? values.nope : values.rope)
          .push_back(absolute ? std::fabs(from[row]) : from[row]);
  values.all = values.rope;
  values.all.insert(values.all.end(), values.nope.begin(), values.nope.end());
  return values;
}

HistogramBins histogram_bins(HistogramRange range, const std::vector<double>& values) {
  HistogramBins bins{.count = kHistogramBins};
  if (range == HistogramRange::signed_to_one && std::ranges::min(values) < 0) bins.low = -1;
  if (range != HistogramRange::own) return bins;
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

std::string vertical_line(double x, const char* colour, int dash) {
  if (std::isnan(x)) return "";
  return fmt::format(
      "set arrow from first {0}, graph 0 to first {0}, graph 1 nohead lw 1 dt {2} lc rgb '{1}' "
      "front\n",
      x, colour, dash);
}

std::string draw_histogram(std::size_t index, const HistogramPanel& panel, bool any_nope) {
  const double low = panel.bins.low * panel.scale;
  const double high = panel.bins.high * panel.scale;
  std::int64_t tallest = 1;
  for (std::size_t bin = 0; bin < panel.rope.size(); ++bin)
    tallest = std::max(tallest, panel.rope[bin] + panel.nope[bin]);
  const auto top = static_cast<double>(tallest);
  std::string text = fmt::format(
      "unset arrow\nset xrange [{}:{}]\nset xtics {}\nset yrange [0:{}]\nset ytics {}\n", low, high,
      nice_tick_step(high - low, 3), 1.08 * top, integer_tick_step(top, 3));
  text += vertical_line(panel.mean * panel.scale, style::kInk, 1);
  text += vertical_line(panel.null * panel.scale, style::kInk, 3);
  const auto boxes = [&](const char* from, const char* to, const char* colour) {
    return fmt::format(
        "data using ($1 == {0} ? ($2 + $3) * {1} : NaN):(0):($2 * {2}):($3 * {2}):({3}):({4}) with "
        "boxxyerror fillstyle solid 0.85 border lc rgb 'white' lw 0.3 lc rgb '{5}'",
        index, 0.5 * panel.scale, panel.scale, from, to, colour);
  };
  text += "plot " + boxes("0", "$4", style::kRope);
  if (any_nope) text += ", \\\n  " + boxes("$4", "$4 + $5", style::kNope);
  return text + "\n";
}

// One panel for each measure that the results contain.
std::vector<HistogramPanel> histogram_panels(const AnalysisResults& results) {
  std::vector<HistogramPanel> panels;
  for (const auto& measure : kHistogramMeasures) {
    if (!results.has(measure.table)) continue;
    const ResultFrame& frame = results.frame(measure.table);
    if (measure.optional && !frame.has(measure.column)) continue;
    const auto values = head_values(frame, measure.column, measure.absolute);
    if (values.all.empty()) continue;
    const auto bins = histogram_bins(measure.range, values.all);
    const double null = frame.has(measure.null_column)
                            ? mean_of(head_values(frame, measure.null_column, false).all)
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

Figure distributions(const AnalysisResults& results) {
  const auto panels = histogram_panels(results);
  if (panels.empty()) return {};
  const bool nope = std::ranges::any_of(panels, &HistogramPanel::any_nope);
  const bool null = std::ranges::any_of(panels, [](const auto& p) { return !std::isnan(p.null); });
  Figure figure;
  figure.data = histogram_table(panels);
  const PanelGrid grid({.count = panels.size(),
                        .columns = 4,
                        .aspect = 0.62,
                        .top = nope ? 0.36 : 0.2,
                        .own_ranges = true,
                        .y_label = "heads"});
  figure.title = "How the measures spread over heads";
  figure.caption = fmt::format(
      "Histograms over the heads of '{}'. Solid line: the mean over heads{}. r_q and r_k on the "
      "first component, |r| and |r_k| along a; plasticity is the mean of a head's profile. At the "
      "ends of the bias and the drop the last hundredth of heads stands in the last bin.{}",
      results.run_title(),
      null ? "; dotted line: what positions without relation to the vectors would give (mean |r|)"
           : "",
      nope ? " Heads of NoPE layers are stacked on those of RoPE layers." : "");
  grid.draw(figure, (nope ? grid.legend(rope_nope_legend()) : "") + "unset grid\n",
            [&](std::size_t i) {
              return PanelGrid::Panel{panels[i].title, draw_histogram(i, panels[i], nope)};
            });
  return figure;
}

}  // namespace qkscope
