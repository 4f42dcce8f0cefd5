// Rows of runs, columns of layers or dimensions: cells with a mean over heads.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/registry.h"
#include "analysis/figures/run_axis.h"
#include "analysis/figures/script.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

constexpr int kBins = 10;

// (runs): the last layer that the run's heads come from.
std::vector<std::int64_t> last_layers(const Results& results, const Frame& frame) {
  std::vector<std::int64_t> last(results.runs().size(), 0);
  const auto& layers = frame.integers("layer");
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    auto& so_far = last[static_cast<std::size_t>(frame.run()[row])];
    so_far = std::max(so_far, layers[row]);
  }
  return last;
}

int bin_of(std::int64_t layer, std::int64_t last) {
  if (last == 0) return 0;
  return static_cast<int>(std::min<std::int64_t>(kBins - 1, kBins * layer / last));
}

// Mean over the heads in each tenth of the depth; of a table with components the first counts.
Table layer_bins(const Results& results, const Frame& frame, const std::vector<double>& values) {
  const auto& layers = frame.integers("layer");
  const auto* components = frame.has("pc") ? &frame.integers("pc") : nullptr;
  const auto last = last_layers(results, frame);
  std::map<std::pair<int, int>, std::vector<double>> cells;  // run, bin
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if ((components && (*components)[row] != 0) || std::isnan(values[row])) continue;
    const int run = frame.run()[row];
    cells[{run, bin_of(layers[row], last[static_cast<std::size_t>(run)])}].push_back(values[row]);
  }
  Table table;
  table.column("bin", Table::Type::integer)
      .column("row", Table::Type::integer)
      .column("mean", Table::Type::real)
      .column("heads", Table::Type::integer)
      .column("model", Table::Type::text);
  for (const auto& [place, heads] : cells)
    table.add({std::int64_t{place.second}, std::int64_t{-place.first}, mean_of(heads),
               static_cast<std::int64_t>(heads.size()),
               one_line(results.runs()[static_cast<std::size_t>(place.first)].label)});
  return table;
}

// Rows of runs over a common axis of depth.
std::string depth_axes(const Results& results) {
  return run_rows(results) +
         "unset colorbox\nunset grid\nunset border\nset xrange [-0.5:9.5]\n"
         "set xtics ('0' -0.5, '0.2' 1.5, '0.4' 3.5, '0.6' 5.5, '0.8' 7.5, '1' 9.5)\n"
         "set xlabel 'depth (layer / last layer)' offset 0, 0.3\nset rmargin 2\n";
}

// Cells with their number in ink, white where `dark` holds.
std::string plot_numbered_cells(const std::string& dark) {
  return "plot \\\n" + plot_unit_cells(1, 2, 3) +
         fmt::format(
             ", \\\n  data using 1:({2} ? NaN : $2):(shown($3)) with labels font ',{0}' tc rgb "
             "'{1}', \\\n"
             "  data using 1:({2} ? $2 : NaN):(shown($3)) with labels font ',{0}' tc rgb "
             "'white'\n",
             style::kSmall, style::kInk, dark);
}

double height_of(const Results& results) {
  return 0.62 + 0.2 * static_cast<double>(results.runs().size());
}

Figure layer_heatmap(const Results& results, Table bins, const std::vector<std::string>& colours) {
  Figure figure;
  figure.data = std::move(bins);
  figure.width = style::kColumn;
  figure.height = height_of(results);
  figure.script = palette(colours) + depth_axes(results) +
                  "set cbrange [0:1]\nset tmargin 0.5\n"
                  "shown(v) = (v <= -0.005 ? '-' : '').(abs(v) > 0.995 ? '1.0' : sprintf('%.2f', "
                  "abs(v))[2:4])\n" +
                  plot_numbered_cells("$3 >= 0.5");
  return figure;
}

// The caption of a map over depth.
std::string depth_caption(const std::string& what, const std::string& colours) {
  return fmt::format(
      "Mean {} over the heads in each tenth of the depth. The tenth is that of layer / last layer; "
      "the last layer is the last one with a captured head. {}; cells without heads are empty.",
      what, colours);
}

Table mean_weights(const Results& results) {
  const Frame& weights = results.frame("head_component_weights");
  const auto& values = weights.reals("component_weight");
  const auto& components = weights.integers("component");
  std::map<std::pair<int, std::int64_t>, std::vector<double>> cells;  // run, dimension
  for (std::size_t row = 0; row < weights.rows(); ++row)
    if (!std::isnan(values[row]))
      cells[{weights.run()[row], components[row]}].push_back(values[row]);
  Table table;
  table.column("dimension", Table::Type::integer)
      .column("row", Table::Type::integer)
      .column("mean_share", Table::Type::real)
      .column("heads", Table::Type::integer)
      .column("model", Table::Type::text);
  for (const auto& [place, heads] : cells)
    table.add({place.second, std::int64_t{-place.first}, mean_of(heads),
               static_cast<std::int64_t>(heads.size()),
               one_line(results.runs()[static_cast<std::size_t>(place.first)].label)});
  return table;
}

}  // namespace

Figure layer_heatmap_rq(const Results& results) {
  const Frame& qk = results.frame("qk");
  Figure figure = layer_heatmap(results, layer_bins(results, qk, qk.reals("r_q")), style::kBlues);
  figure.title = "Position in queries over depth";
  figure.caption = depth_caption("r_q on the first component", "Colours run from 0 to 1");
  return figure;
}

Figure layer_heatmap_rk(const Results& results) {
  const Frame& qk = results.frame("qk");
  Figure figure = layer_heatmap(results, layer_bins(results, qk, qk.reals("r_k")), style::kReds);
  figure.title = "Position in keys over depth";
  figure.caption =
      depth_caption("r_k (with its sign) on the first component", "Colours run from 0 to 1");
  return figure;
}

Figure layer_heatmap_rka(const Results& results) {
  const Frame& rotated = results.frame("rotated");
  Figure figure = layer_heatmap(
      results, layer_bins(results, rotated, absolute(rotated.reals("r_k_a"))), style::kReds);
  figure.title = "Position in keys along the drift, over depth";
  figure.caption = depth_caption("|r_k_a|, the correlation of keys with position along a,",
                                 "Colours run from 0 to 1");
  return figure;
}

Figure layer_heatmap_bias(const Results& results) {
  const Frame& rotated = results.frame("rotated");
  Figure figure;
  figure.data = layer_bins(results, rotated, rotated.reals("bias_strength"));
  if (figure.data.rows() == 0) return nothing_to_draw("none of its numbers exists");
  const auto& means = figure.data.find("mean")->reals;
  const Unit unit = unit_for({means}, "per token");
  const auto sizes = absolute(means);
  const double largest = *std::max_element(sizes.begin(), sizes.end());
  const double top = largest > 0 ? largest : 1;
  figure.width = style::kColumn;
  figure.height = height_of(results) + 0.16;
  figure.script =
      palette(style::kAroundZero) + depth_axes(results) +
      fmt::format(
          "set cbrange [{}:{}]\nset tmargin 2\n"
          "set label 'mean bias ({})' at graph 1, graph 1 right offset 0, 0.7 font ',{}'\n"
          "shown(v) = sprintf('%.1f', v * {})\n",
          -top, top, unit.text, style::kSmall, unit.scale) +
      plot_numbered_cells(fmt::format("abs($3) > {}", 0.7 * top));
  figure.title = "Positional bias over depth";
  figure.caption = depth_caption("bias_strength (mu_q_a alpha_k, per token)",
                                 "Red is above 0, blue below, white 0");
  return figure;
}

Figure component_weights(const Results& results) {
  Figure figure;
  figure.title = "Positional information per dimension";
  figure.caption =
      "How the linear relation of queries to position spreads over the dimensions of a head: R^2 "
      "of each dimension on position, as a share of the head's sum, mean over heads.";
  figure.data = mean_weights(results);
  figure.width = style::kColumn;
  if (results.runs().size() == 1) {
    figure.height = style::kHeight;
    figure.script = fmt::format(
        "set xlabel 'dimension of the head'\nset ylabel 'mean share'\nset yrange [0:*]\n"
        "set xrange [-1:*]\nset boxwidth 1\nplot data using 1:3 with boxes lc rgb '{}'\n",
        style::kAccent);
    return figure;
  }
  figure.height = height_of(results);
  figure.script = palette(style::kGreens) + run_rows(results) +
                  "set cbrange [0:*]\nunset grid\nunset border\nset autoscale xfix\n"
                  "set xlabel 'dimension of the head' offset 0, 0.3\nset tmargin 1.5\n"
                  "set rmargin 6\n" +
                  fmt::format(
                      "set cbtics font ',{0}'\n"
                      "set label 'mean share' at graph 1, graph 1 offset 0, 0.7 font ',{0}'\n"
                      "plot \\\n",
                      style::kSmall) +
                  plot_unit_cells(1, 2, 3) + "\n";
  return figure;
}

}  // namespace qkscope
