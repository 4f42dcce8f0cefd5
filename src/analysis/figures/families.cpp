// Comparison of model families.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/panels.h"
#include "analysis/figures/registry.h"
#include "analysis/figures/run_axis.h"
#include "analysis/figures/script.h"
#include "analysis/figures/style.h"
#include "base/core/numbers.h"

namespace qkscope {
namespace {

constexpr int kFamilyBins = 40;
constexpr char kOneFamily[] =
    "all runs are of one family of models; 'family' of a run in the sweep's file names another";

// Heads of all runs of one model family.
struct Family {
  std::string name;
  std::vector<double> bias;
  std::vector<double> separation;
  std::vector<std::size_t> rows;  // of rotated.parquet
};

// Families in the order of their first run.
std::vector<Family> families_of(const Results& results) {
  std::vector<Family> families;
  std::vector<std::size_t> of_run;
  for (const auto& run : results.runs()) {
    const std::string name = run.family.empty() ? "other" : run.family;
    const auto found =
        std::ranges::find_if(families, [&](const Family& family) { return family.name == name; });
    of_run.push_back(static_cast<std::size_t>(found - families.begin()));
    if (found == families.end()) families.push_back({name, {}, {}, {}});
  }
  const Frame& rotated = results.frame("rotated");
  const auto& bias = rotated.reals("bias_strength");
  const auto& separation = rotated.reals("separation_strength");
  for (std::size_t row = 0; row < rotated.rows(); ++row) {
    if (std::isnan(bias[row]) || std::isnan(separation[row])) continue;
    auto& family = families[of_run[static_cast<std::size_t>(rotated.run()[row])]];
    family.bias.push_back(bias[row]);
    family.separation.push_back(separation[row]);
    family.rows.push_back(row);
  }
  std::erase_if(families, [](const Family& family) { return family.bias.empty(); });
  return families;
}

Figure no_comparison(const std::vector<Family>& families) {
  return families.empty() ? Figure() : nothing_to_draw(kOneFamily);
}

const std::string& colour_of(std::size_t family) {
  return style::kFamilies[family % style::kFamilies.size()];
}

int point_of(std::size_t family) {
  return style::kFamilyPoints[family % std::size(style::kFamilyPoints)];
}

std::vector<double> all_biases(const std::vector<Family>& families) {
  std::vector<double> all;
  for (const auto& family : families) all.insert(all.end(), family.bias.begin(), family.bias.end());
  return all;
}

// Histograms of the bias, one per family over common bins.
struct BiasBins {
  double low = 0;
  double high = 0;
  Table table;
  double tallest = 0;

  double edge(int bin) const { return low + (high - low) * bin / kFamilyBins; }
  std::size_t bin_of(double value) const {
    const double place = std::floor(kFamilyBins * (value - low) / (high - low));
    return static_cast<std::size_t>(std::clamp(place, 0.0, kFamilyBins - 1.0));
  }
};

BiasBins bias_bins(const std::vector<Family>& families) {
  const auto all = all_biases(families);
  BiasBins bins;
  bins.low = quantile_of(all, 0.01);
  bins.high = quantile_of(all, 0.99);
  if (!(bins.high > bins.low)) bins.high = bins.low + 1;
  bins.table =
      empty_table("integer panel, real low, real high, real fraction, integer heads, text family");
  for (std::size_t i = 0; i < families.size(); ++i) {
    std::vector<std::int64_t> counts(kFamilyBins, 0);
    for (const double value : families[i].bias) ++counts[bins.bin_of(value)];
    const auto total = static_cast<double>(families[i].bias.size());
    for (int bin = 0; bin < kFamilyBins; ++bin) {
      const auto count = counts[static_cast<std::size_t>(bin)];
      const double fraction = static_cast<double>(count) / total;
      bins.tallest = std::max(bins.tallest, fraction);
      bins.table.add({static_cast<std::int64_t>(i), bins.edge(bin), bins.edge(bin + 1), fraction,
                      count, one_line(families[i].name)});
    }
  }
  return bins;
}

double positive_share(const std::vector<double>& values) {
  const auto positive = std::ranges::count_if(values, [](double x) { return x > 0; });
  return static_cast<double>(positive) / static_cast<double>(values.size());
}

// Plots the histogram of family `i` with lines at the mean and at 0.
std::string plot_bias_bins(std::size_t i, double mean, double scale) {
  return fmt::format(
      "unset arrow\n"
      "set arrow from first {0}, graph 0 to first {0}, graph 1 nohead lw 1 lc rgb '{1}' front\n"
      "set arrow from first 0, graph 0 to first 0, graph 1 nohead dt 2 lw 0.6 lc rgb '{2}' front\n"
      "plot data using ($1 == {3} ? 0.5 * ($2 + $3) * {4} : NaN):(0):($2 * {4}):($3 * {4}):(0):4 "
      "with boxxyerror fillstyle solid 0.85 noborder lc rgb '{5}'\n",
      mean * scale, style::kInk, style::kFaint, i, scale, colour_of(i));
}

// One row per head of every family. The names of a few outstanding heads within the axis are shown.
struct FamilyPoints {
  Table table;
  std::vector<double> bias;  // (heads)
  std::vector<double> separation;
  std::vector<KeyEntry> key;
};

// Names of the five heads farthest from the medians, among those that the axis does not cut off.
std::vector<std::string> family_head_names(const Results& results, const FamilyPoints& points,
                                           const std::vector<std::size_t>& rows) {
  const Frame& rotated = results.frame("rotated");
  const double low = quantile_of(points.bias, 0.005);
  const double high = quantile_of(points.bias, 0.995);
  std::vector<std::string> names(rows.size());
  std::size_t shown = 0;
  for (const auto i : outstanding(points.separation, points.bias, rows.size())) {
    if (points.bias[i] < low || points.bias[i] > high) continue;
    const auto& run = results.runs()[static_cast<std::size_t>(rotated.run()[rows[i]])];
    names[i] = fmt::format("{} {}.{}", shortened(run.title, 14),
                           rotated.integers_with_gaps("layer")[rows[i]], rotated.heads()[rows[i]]);
    if (++shown == 5) break;
  }
  return names;
}

FamilyPoints family_points(const Results& results, const std::vector<Family>& families) {
  FamilyPoints points;
  points.table = empty_table(
      "integer family_index, real separation_strength, real bias_strength, real r_family, integer "
      "layer, integer head, text name, text family, text model");
  std::vector<std::size_t> rows;
  for (const auto& family : families) {
    points.bias.insert(points.bias.end(), family.bias.begin(), family.bias.end());
    points.separation.insert(points.separation.end(), family.separation.begin(),
                             family.separation.end());
    rows.insert(rows.end(), family.rows.begin(), family.rows.end());
  }
  const auto names = family_head_names(results, points, rows);
  const Frame& rotated = results.frame("rotated");
  const auto& layers = rotated.integers("layer");
  const auto& heads = rotated.heads();
  std::size_t place = 0;
  for (std::size_t i = 0; i < families.size(); ++i) {
    const auto& family = families[i];
    const double r = correlation_of(family.separation, family.bias);
    points.key.push_back(
        {fmt::format("{}, {{/:Italic r}} = {:.2f}", escaped_markup(family.name), r), colour_of(i),
         point_of(i)});
    for (std::size_t j = 0; j < family.rows.size(); ++j) {
      const auto row = family.rows[j];
      points.table.add({static_cast<std::int64_t>(i), family.separation[j], family.bias[j], r,
                        layers[row], heads[row], names[place++], one_line(family.name),
                        results.label(rotated.run()[row])});
    }
  }
  return points;
}

}  // namespace

Figure bias_histogram(const Results& results) {
  const auto families = families_of(results);
  if (families.size() < 2) return no_comparison(families);
  BiasBins bins = bias_bins(families);
  const Unit unit = unit_for({all_biases(families)}, "per token");
  const Panels panels({.count = static_cast<int>(families.size()),
                       .columns = 3,
                       .aspect = 0.7,
                       .top = 0.3,
                       .x_label = fmt::format("bias ({})", unit.text),
                       .y_label = "fraction of heads"});
  Figure figure;
  figure.title = "Positional bias of families of models";
  panels.begin(figure);
  figure.script +=
      fmt::format("set xrange [{}:{}]\nset xtics {}\nset yrange [0:{}]\nset ytics {}\nunset grid\n",
                  bins.low * unit.scale, bins.high * unit.scale,
                  round_step((bins.high - bins.low) * unit.scale, 4), 1.08 * bins.tallest,
                  round_step(bins.tallest, 3));
  for (std::size_t i = 0; i < families.size(); ++i)
    figure.script +=
        panels.panel(static_cast<int>(i), fmt::format("{}: {:.0f} % positive", families[i].name,
                                                      100 * positive_share(families[i].bias))) +
        plot_bias_bins(i, mean_of(families[i].bias), unit.scale);
  figure.script += panels.end();
  figure.data = std::move(bins.table);
  figure.caption =
      "bias_strength (mu_q_a alpha_k, per token) of all heads of a family of models: fraction of "
      "its heads in each bin; the last hundredth of all heads at either end stands in the last "
      "bin. Solid line: the mean; dashed: 0. The title says how many heads are positive.";
  return figure;
}

Figure family_scatter(const Results& results) {
  const auto families = families_of(results);
  if (families.size() < 2) return no_comparison(families);
  FamilyPoints points = family_points(results, families);
  const Unit unit = unit_for({points.bias}, "per token");
  // Clip the axis at the 0.5th and 99.5th percentile: outliers would compress all other heads.
  const double low = quantile_of(points.bias, 0.005) * unit.scale;
  const double high = quantile_of(points.bias, 0.995) * unit.scale;
  const double margin = std::max(0.05 * (high - low), 1e-12);
  const Key legend(points.key, style::kColumn);
  Figure figure;
  figure.title = "Bias against separation by family";
  figure.data = std::move(points.table);
  figure.width = style::kColumn;
  figure.height = 0.4 + 2.0 + legend.height() + 0.06;
  figure.script =
      margins({0.52, style::kColumn - 0.08, 0.36 + legend.height(), figure.height - 0.06}) +
      legend.labels() +
      fmt::format(
          "unset grid\nset tics font ',{0}'\nset xrange [-0.02:1.02]\nset yrange [{1}:{2}]\n"
          "set label 'separation' at graph 0.5, screen {3:.4f}/height center font ',{4}'\n"
          "set label 'bias ({5})' at screen 0.1/width, graph 0.5 center rotate font ',{4}'\n"
          "plot 0 lw 0.5 dt 2 lc rgb '{6}'",
          style::kSmall, low - margin, high + margin, 0.1 + legend.height(), style::kLabel,
          unit.text, style::kFaint);
  for (std::size_t i = 0; i < families.size(); ++i)
    figure.script += fmt::format(
        ", \\\n  data using ($1 == {} ? $2 : NaN):($3 * {}) with points pt {} ps 0.22*mark lc rgb "
        "'#70{}'",
        i, unit.scale, point_of(i), colour_of(i).substr(1));
  figure.script += fmt::format(
      ", \\\n  data using 2:($3 * {}):(strcol(7)) with labels left offset 0.4, 0.25 font ',{}' "
      "noenhanced tc rgb '{}'\n",
      unit.scale, style::kNote, style::kInk);
  figure.caption = fmt::format(
      "One point per head: separation_strength against bias_strength (mu_q_a alpha_k, per token), "
      "with its sign. r is Pearson's correlation over the heads of a family; over all heads it is "
      "{:.2f}. The half hundredth of heads at either end of the bias lies outside the picture. The "
      "heads farthest from the medians carry their names (run, layer.head).",
      correlation_of(points.separation, points.bias));
  return figure;
}

}  // namespace qkscope
