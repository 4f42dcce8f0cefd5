// Plasticity by distances: cells of pairs, panels of runs.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "figures/figure.h"
#include "figures/heatmaps.h"
#include "figures/panels.h"
#include "figures/script.h"

namespace qkscope {
namespace {

// Bins of pair_heatmap along one axis. A head's bins share out its own context, so their width
// differs a little from head to head: what heads have in common is the number of the bin.
class Bins {
 public:
  Bins(const Results& results, const Frame& frame, const std::string& axis)
      : low_(frame.reals(axis + "_low")),
        high_(frame.reals(axis + "_high")),
        width_(results.runs().size(), 0) {
    for (std::size_t row = 0; row < frame.rows(); ++row) {
      double& widest = width_[static_cast<std::size_t>(frame.run()[row])];
      widest = std::max(widest, high_[row] - low_[row]);
    }
  }

  std::int64_t number(std::size_t row) const {
    return std::llround(low_[row] / (high_[row] - low_[row]));
  }
  double edge(int run, std::int64_t number) const {
    return static_cast<double>(number) * width_[static_cast<std::size_t>(run)];
  }

 private:
  const std::vector<double>& low_;
  const std::vector<double>& high_;
  std::vector<double> width_;  // (runs): of the widest bins
};

// Mean over the pairs of all heads of a run, cell by cell.
Table pooled_cells(const Results& results) {
  const Frame& frame = results.frame("pair_heatmap");
  const auto& values = frame.reals("ap");
  const auto& pairs = frame.integers("n_pairs");
  const Bins keys(results, frame, "key_distance");
  const Bins queries(results, frame, "query_distance");
  struct Sum {
    double weighted = 0;
    std::int64_t pairs = 0;
  };
  std::map<std::array<std::int64_t, 3>, Sum> cells;  // run, bins of key and query distance
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if (std::isnan(values[row]) || pairs[row] == 0) continue;
    auto& sum = cells[{frame.run()[row], keys.number(row), queries.number(row)}];
    sum.weighted += values[row] * static_cast<double>(pairs[row]);
    sum.pairs += pairs[row];
  }
  Table table;
  table.column("run", Table::Type::integer)
      .column("key_distance_low", Table::Type::real)
      .column("key_distance_high", Table::Type::real)
      .column("query_distance_low", Table::Type::real)
      .column("query_distance_high", Table::Type::real)
      .column("ap", Table::Type::real)
      .column("n_pairs", Table::Type::integer)
      .column("model", Table::Type::text);
  for (const auto& [place, sum] : cells) {
    const auto [index, key, query] = place;
    const int run = static_cast<int>(index);
    table.add({index, keys.edge(run, key), keys.edge(run, key + 1), queries.edge(run, query),
               queries.edge(run, query + 1), sum.weighted / static_cast<double>(sum.pairs),
               sum.pairs, one_line(results.runs()[static_cast<std::size_t>(run)].label)});
  }
  return table;
}

}  // namespace

Figure plasticity_heatmap(const Results& results) {
  Figure figure;
  figure.title = "Plasticity by distance";
  figure.caption =
      "Mean attention plasticity of pairs of keys, by the distance of the two keys from each other "
      "and the distance of their midpoint from the query. Pairs of all heads are pooled bin by "
      "bin; "
      "cells without pairs are white.";
  figure.data = pooled_cells(results);
  const Frame& cells = results.frame("pair_heatmap");
  const auto across = largest_by_run(results, cells, "key_distance_high");
  const auto away = largest_by_run(results, cells, "query_distance_high");
  const Panels panels({.count = static_cast<int>(results.runs().size()),
                       .right = 0.55,
                       .own_ranges = true,
                       .x_label = "distance between keys (tokens)",
                       .y_label = "distance to query (tokens)"});
  figure.width = panels.width();
  figure.height = panels.height();
  figure.script =
      panels.begin() + palette(kCividis) +
      fmt::format(
          "set cbrange [0:1]\nset cbtics 0.5\nunset grid\n"
          "set format x '%.0s%c'\nset format y '%.0s%c'\n"
          "set colorbox user origin screen {:.4f}, screen 0.3 size screen {:.4f}, screen 0.4 "
          "noborder\n",
          1 - 0.42 / figure.width, 0.09 / figure.width);
  for (std::size_t i = 0; i < results.runs().size(); ++i) {
    figure.script += panels.panel(static_cast<int>(i), results.runs()[i].label);
    figure.script += fmt::format(
        "set xtics {1}\nset ytics {2}\nset xrange [0:{3}]\nset yrange [0:{4}]\n"
        "plot data using ($1 == {0} ? $2 : NaN):4:2:3:4:5:6 with boxxyerror fillstyle solid "
        "linecolor palette\n"
        "unset colorbox\n",
        i, round_step(across[i], 2), round_step(away[i], 3), across[i], away[i]);
  }
  figure.script += panels.end();
  return figure;
}

}  // namespace qkscope
