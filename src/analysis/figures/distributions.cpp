// Histograms of the main measures over the heads of one model.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/panels.h"
#include "analysis/figures/registry.h"
#include "analysis/figures/run_axis.h"
#include "analysis/figures/script.h"
#include "analysis/figures/style.h"
#include "base/core/numbers.h"

namespace qkscope {
namespace {

constexpr int kHistogramBins = 24;

enum class SpreadRange { to_one, signed_to_one, own };

struct SpreadMeasure {
  const char* table;
  const char* column;
  const char* title;
  SpreadRange range;
  bool absolute = false;
  bool optional = false;         // older results do not have the column
  const char* null_column = "";  // the same measure with shuffled positions
};

constexpr SpreadMeasure kSpreadMeasures[] = {
    {"qk", "r_q", "r_q on PC0", SpreadRange::signed_to_one, false, false, "r_q_null"},
    {"qk", "r_k", "r_k on PC0", SpreadRange::signed_to_one, false, false, "r_k_null"},
    {"qk", "explained_variance", "share of variance on PC0", SpreadRange::to_one},
    {"rotated", "position_r", "|r| along a, pooled", SpreadRange::to_one, false, false,
     "position_r_null"},
    {"rotated", "r_k_a", "|r_k| along a", SpreadRange::to_one, true, false, "r_k_a_null"},
    {"rotated", "bias_strength", "bias", SpreadRange::own},
    {"rotated", "separation_strength", "separation", SpreadRange::to_one},
    {"rotated", "plane_var_fraction", "share of variance in (a, b)", SpreadRange::to_one},
    {"head_metrics", "ap_profile_overall", "plasticity", SpreadRange::to_one},
    {"head_metrics", "ap_first20", "plasticity, first 20 %", SpreadRange::to_one},
    {"head_metrics", "ap_last20", "plasticity, last 20 %", SpreadRange::to_one},
    {"head_metrics", "ap_drop", "drop of plasticity", SpreadRange::own},
    {"head_metrics", "ap_free_overall", "plasticity, model-free", SpreadRange::to_one, false,
     true}};

struct SpreadValues {
  std::vector<double> rope;  // also heads whose layer kind is unknown
  std::vector<double> nope;

  std::vector<double> all() const {
    std::vector<double> both = rope;
    both.insert(both.end(), nope.begin(), nope.end());
    return both;
  }
};

SpreadValues spread_values(const Frame& frame, const char* column) {
  const auto& from = frame.reals(column);
  SpreadValues values;
  for (std::size_t row = 0; row < frame.rows(); ++row)
    if (!std::isnan(from[row]) && frame.is_first_component(row))
      (frame.is_nope(row) ? values.nope : values.rope).push_back(from[row]);
  return values;
}

struct SpreadHistogram {
  double low = 0;
  double high = 1;
  std::vector<std::int64_t> rope = std::vector<std::int64_t>(kHistogramBins, 0);
  std::vector<std::int64_t> nope = std::vector<std::int64_t>(kHistogramBins, 0);

  double edge(int bin) const { return low + (high - low) * bin / kHistogramBins; }
  void count(const std::vector<double>& values, std::vector<std::int64_t>& bins) const {
    for (const double value : values) {
      const auto bin = static_cast<int>(std::floor(kHistogramBins * (value - low) / (high - low)));
      ++bins[static_cast<std::size_t>(std::clamp(bin, 0, kHistogramBins - 1))];
    }
  }
};

SpreadHistogram spread_histogram(const SpreadMeasure& measure, const SpreadValues& values) {
  SpreadHistogram histogram;
  const auto all = values.all();
  if (measure.range == SpreadRange::signed_to_one)
    histogram.low = std::ranges::min(all) < 0 ? -1 : 0;
  if (measure.range == SpreadRange::own) {
    // Values below the 1st and above the 99th percentile are counted in the outermost bins.
    histogram.low = std::min(0.0, quantile_of(all, 0.01));
    histogram.high = std::max(0.0, quantile_of(all, 0.99));
    if (!(histogram.high > histogram.low)) histogram.high = histogram.low + 1;
  }
  histogram.count(values.rope, histogram.rope);
  histogram.count(values.nope, histogram.nope);
  return histogram;
}

struct SpreadPanel {
  std::string column;
  std::string title;
  SpreadHistogram histogram;
  double scale = 1;  // factor of the axis
  double mean = 0;
  double null = 0;    // NaN: unknown
  bool nope = false;  // some heads are on NoPE layers
};

std::string vertical_line(double x, const char* colour, int dash) {
  if (std::isnan(x)) return "";
  return fmt::format(
      "set arrow from first {0}, graph 0 to first {0}, graph 1 nohead lw 1 dt {2} lc rgb '{1}' "
      "front\n",
      x, colour, dash);
}

std::string draw_histogram(std::size_t index, const SpreadPanel& panel, bool any_nope) {
  const auto& h = panel.histogram;
  const double low = h.low * panel.scale;
  const double high = h.high * panel.scale;
  std::int64_t tallest = 1;
  for (std::size_t bin = 0; bin < h.rope.size(); ++bin)
    tallest = std::max(tallest, h.rope[bin] + h.nope[bin]);
  const auto top = static_cast<double>(tallest);
  std::string text = fmt::format(
      "unset arrow\nset xrange [{}:{}]\nset xtics {}\nset yrange [0:{}]\nset ytics {}\n", low, high,
      round_step(high - low, 3), 1.08 * top, std::max(1.0, round_step(top, 3)));
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

// The bias is small, so its axis is scaled by a power of ten.
void scale_bias(const SpreadValues& values, SpreadPanel& panel) {
  const Unit unit = unit_for({values.all()}, "per token");
  panel.scale = unit.scale;
  panel.title = unit.scale == 1 ? "bias (per token)"
                                : fmt::format("bias (1e{:.0f} per token)", -std::log10(unit.scale));
}

// One panel for each measure that the results contain.
std::vector<SpreadPanel> spread_panels(const Results& results) {
  std::vector<SpreadPanel> panels;
  for (const auto& measure : kSpreadMeasures) {
    if (!results.has(measure.table)) continue;
    const Frame& frame = results.frame(measure.table);
    if (measure.optional && !frame.has(measure.column)) continue;
    auto values = spread_values(frame, measure.column);
    if (measure.absolute) values = {absolute(values.rope), absolute(values.nope)};
    if (values.all().empty()) continue;
    SpreadPanel panel{measure.column, measure.title, spread_histogram(measure, values)};
    panel.mean = mean_of(values.all());
    panel.null = frame.has(measure.null_column)
                     ? mean_of(spread_values(frame, measure.null_column).all())
                     : kNan;
    panel.nope = !values.nope.empty();
    if (panel.column == "bias_strength") scale_bias(values, panel);
    panels.push_back(std::move(panel));
  }
  return panels;
}

Table spread_table(const std::vector<SpreadPanel>& panels) {
  Table table = empty_table(
      "integer panel, real low, real high, integer heads, integer nope_heads, real mean, real "
      "null, text measure");
  for (std::size_t i = 0; i < panels.size(); ++i)
    for (int bin = 0; bin < kHistogramBins; ++bin) {
      const auto& h = panels[i].histogram;
      table.add({static_cast<std::int64_t>(i), h.edge(bin), h.edge(bin + 1),
                 h.rope[static_cast<std::size_t>(bin)], h.nope[static_cast<std::size_t>(bin)],
                 panels[i].mean, panels[i].null, panels[i].column});
    }
  return table;
}

}  // namespace

Figure distributions(const Results& results) {
  const auto panels = spread_panels(results);
  if (panels.empty()) return {};
  const bool nope = std::ranges::any_of(panels, &SpreadPanel::nope);
  const bool null = std::ranges::any_of(panels, [](const auto& p) { return !std::isnan(p.null); });
  Figure figure;
  figure.data = spread_table(panels);
  const Panels grid({.count = static_cast<int>(panels.size()),
                     .columns = 4,
                     .aspect = 0.62,
                     .top = nope ? 0.36 : 0.2,
                     .own_ranges = true,
                     .x_label = "",
                     .y_label = "heads"});
  figure.title = "How the measures spread over heads";
  figure.caption = fmt::format(
      "Histograms over the heads of '{}'. Solid line: the mean over heads{}. r_q and r_k on the "
      "first component, |r| and |r_k| along a; plasticity is the mean of a head's profile. At the "
      "ends of the bias and the drop the last hundredth of heads stands in the last bin.{}",
      results.title(),
      null ? "; dotted line: what positions without relation to the vectors would give (mean |r|)"
           : "",
      nope ? " Heads of NoPE layers are stacked on those of RoPE layers." : "");
  grid.begin(figure);
  figure.script += (nope ? grid.key(layer_key()) : "") + "unset grid\n";
  for (std::size_t i = 0; i < panels.size(); ++i)
    figure.script +=
        grid.panel(static_cast<int>(i), panels[i].title) + draw_histogram(i, panels[i], nope);
  figure.script += grid.end();
  return figure;
}

}  // namespace qkscope
