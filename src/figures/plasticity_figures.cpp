// Attention plasticity over the runs, against the position of the query, and by distances.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "figures/panels.h"
#include "figures/registry.h"
#include "figures/run_axis.h"
#include "figures/run_series.h"
#include "figures/script.h"
#include "figures/style.h"

namespace qkscope {
namespace {

// ---- Against the position of the query: a line per head, panels of runs.

constexpr std::int64_t kMeanLine = -1;

struct Profiles {
  // run, line (kMeanLine: mean over heads), position, ap, layer, head, model. First the means.
  Table table;
  std::size_t means = 0;                 // rows of means
  std::vector<std::size_t> first, last;  // (runs): where the rows of its heads are
};

// Values and positions of all heads in one bucket.
struct Bucket {
  std::vector<double> positions;
  std::vector<double> values;
};

Table empty_profiles() {
  Table table;
  table.column("run", Table::Type::integer)
      .column("line", Table::Type::integer)
      .column("position", Table::Type::real)
      .column("ap", Table::Type::real)
      .column("layer", Table::Type::integer)
      .column("head", Table::Type::integer)
      .column("model", Table::Type::text);
  return table;
}

void add_means(const Results& results, Profiles& profiles) {
  const Frame& frame = results.frame("head_profile");
  const auto& positions = frame.reals("position");
  const auto& values = frame.reals("ap");
  std::map<std::pair<int, std::int64_t>, Bucket> buckets;
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if (std::isnan(values[row]) || std::isnan(positions[row])) continue;
    auto& bucket = buckets[{frame.run()[row], frame.integers("q_bucket")[row]}];
    bucket.positions.push_back(positions[row]);
    bucket.values.push_back(values[row]);
  }
  for (const auto& [place, bucket] : buckets)
    profiles.table.add({std::int64_t{place.first}, kMeanLine, mean_of(bucket.positions),
                        mean_of(bucket.values), std::int64_t{-1}, std::int64_t{-1},
                        one_line(results.runs()[static_cast<std::size_t>(place.first)].label)});
  profiles.means = buckets.size();
}

void add_heads(const Results& results, Profiles& profiles) {
  const Frame& frame = results.frame("head_profile");
  const auto& layers = frame.integers("layer");
  const auto& heads = frame.integers("head");
  const auto& positions = frame.reals("position");
  const auto& values = frame.reals("ap");
  profiles.first.resize(results.runs().size());
  profiles.last.resize(results.runs().size());
  std::int64_t line = -1;
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if (row == 0 || frame.run()[row] != frame.run()[row - 1] || layers[row] != layers[row - 1] ||
        heads[row] != heads[row - 1])
      ++line;
    if (std::isnan(values[row]) || std::isnan(positions[row])) continue;
    const auto run = static_cast<std::size_t>(frame.run()[row]);
    const auto place = static_cast<std::size_t>(profiles.table.rows());
    if (profiles.last[run] == 0) profiles.first[run] = place;
    profiles.last[run] = place;
    profiles.table.add({static_cast<std::int64_t>(run), line, positions[row], values[row],
                        layers[row], heads[row], one_line(results.runs()[run].label)});
  }
}

// ---- By distances: cells of pairs, panels of runs.

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

Figure plasticity_trajectory(const Results& results) {
  const Frame& metrics = results.frame("head_metrics");
  const Frame& rotated = results.frame("rotated");
  RunTable table(results);
  const int first =
      table.add_mean("ap_first20", by_run(results, metrics, metrics.reals("ap_first20")));
  const int last =
      table.add_mean("ap_last20", by_run(results, metrics, metrics.reals("ap_last20")));
  const auto biases = by_run(results, rotated, rotated.reals("bias_strength"));
  const int bias = table.add_mean("bias_strength", biases);
  const Unit unit = unit_for(biases, "per token");
  const auto line = [](const std::string& y, int point, const char* colour) {
    return fmt::format("  data using 1:({}) with linespoints lw 1.4 pt {} ps 0.5*mark lc rgb '{}'",
                       y, point, colour);
  };
  Figure figure;
  figure.title = "Plasticity at the beginning and the end of the context";
  figure.caption =
      "Above: attention plasticity averaged over query positions in the first (ap_first20) and the "
      "last fifth (ap_last20) of the context, means over heads; the gap between them is shaded. "
      "Below: mean bias strength (mu_q_a alpha_k, per token). Dashed lines separate phases.";
  const auto shaded = fmt::format(
      "plot data using 1:{}:{} with filledcurves fill solid noborder lc rgb '{}', \\\n{}, \\\n{}\n",
      first, last, style::kHair, line(fmt::format("${}", first), style::kCircle, style::kQuery),
      line(fmt::format("${}", last), style::kSquare, style::kNope));
  const auto below =
      line(fmt::format("${} * {}", bias, unit.scale), style::kCircle, style::kAccent);
  draw_trajectories(
      results,
      {{"attention plasticity", "set yrange [0:1]\nset ytics 0.2\n", shaded},
       {fmt::format("bias ({})", unit.text), "set yrange [*<0:*]\nset ytics autofreq\n",
        "plot \\\n" + below + "\n", all_empty(biases)}},
      {.key = {{"first 20 % of the context", style::kQuery, style::kCircle},
               {"last 20 %", style::kNope, style::kSquare}}},
      figure);
  figure.data = table.table();
  return figure;
}

Figure plasticity_profile(const Results& results) {
  Figure figure;
  figure.title = "Plasticity against query position";
  figure.caption =
      "Attention plasticity over all pairs of earlier keys, against the position of the query: one "
      "grey line per head, their mean (bucket by bucket) in red.";
  Profiles profiles{empty_profiles(), 0, {}, {}};
  add_means(results, profiles);
  add_heads(results, profiles);
  const Panels panels({.count = static_cast<int>(results.runs().size()),
                       .own_ranges = true,
                       .x_label = "query position (tokens)",
                       .y_label = "attention plasticity"});
  figure.width = panels.width();
  figure.height = panels.height();
  const auto last = largest_by_run(results, results.frame("head_profile"), "position");
  figure.script = panels.begin() +
                  "set yrange [0:1]\nset ytics 0.5\nunset grid\n"
                  "set format x '%.0s%c'\n";
  // A head's line is drawn piece by piece, from the row before to this one. Only the rows of the
  // run are looked at: there may be a hundred thousand.
  for (std::size_t i = 0; i < results.runs().size(); ++i) {
    figure.script += panels.panel(static_cast<int>(i), results.runs()[i].label);
    figure.script += fmt::format(
        "set xrange [0:{}]\nset xtics {}\nl1 = -2\nx1 = 0\ny1 = 0\n"
        "plot data every ::{}::{} using (l0 = l1, x0 = x1, y0 = y1, l1 = $2, x1 = $3, y1 = $4, \\\n"
        "    $1 == {} && l0 == l1 ? x0 : NaN):(y0):(x1 - x0):(y1 - y0) \\\n"
        "    with vectors nohead lw 0.4 lc rgb '#A0888888', \\\n",
        1.02 * last[i], round_step(last[i], 2), profiles.first[i], profiles.last[i], i);
    figure.script += fmt::format(
        "  data every ::0::{} using ($1 == {} ? $3 : NaN):4 with lines lw 1.6 lc rgb '{}'\n",
        profiles.means - 1, i, style::kKey);
  }
  figure.script += panels.end();
  figure.data = std::move(profiles.table);
  return figure;
}

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
      panels.begin() + palette(style::kCividis) +
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
