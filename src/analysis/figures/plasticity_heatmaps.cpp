// Attention plasticity of pairs of keys: by their distances, and by the buckets of query and keys.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/panels.h"
#include "analysis/figures/registry.h"
#include "analysis/figures/script.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

// A cell with fewer pairs, over all heads, is marked: its mean may be off by a tenth and more.
constexpr std::int64_t kFewPairs = 100;

// DistanceBins of pair_heatmap along one axis. A head's bins share out its own context, so their
// width differs a little from head to head: what heads have in common is the number of the bin.
class DistanceBins {
 public:
  DistanceBins(const Results& results, const Frame& frame, const std::string& axis)
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

struct PairSum {
  double weighted = 0;
  double weight = 0;
  std::int64_t pairs = 0;

  double mean() const { return weighted / weight; }
};
using PairPlace = std::array<std::int64_t, 3>;  // run, column, row

// Mean over the pairs of all heads, cell by cell. A cell counts by the pairs it stands for: one
// that was sampled as much as one that was not.
template <typename Number>
std::map<PairPlace, PairSum> pooled_pairs(const Frame& frame, const char* value,
                                          const Number& column, const Number& row_number) {
  const auto& values = frame.reals(value);
  const auto& pairs = frame.integers("n_pairs");
  const auto& weights = frame.has("n_eligible") ? frame.integers("n_eligible") : pairs;
  std::map<PairPlace, PairSum> cells;
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if (std::isnan(values[row]) || pairs[row] == 0) continue;
    auto& sum = cells[{frame.run()[row], column(row), row_number(row)}];
    const auto weight = static_cast<double>(weights[row]);
    sum.weighted += values[row] * weight;
    sum.weight += weight;
    sum.pairs += pairs[row];
  }
  return cells;
}

// A cell to draw: edges on the axes, and what it says when the mouse is over it.
struct PairCell {
  int run;
  double x_low, x_high, y_low, y_high;
  double ap;
  std::int64_t pairs;
  std::string where;
};

Table pair_table(const Results& results, const std::vector<PairCell>& cells,
                 const std::array<const char*, 4>& edges) {
  Table table;
  table.column("run", Table::Type::integer);
  for (const auto* name : edges) table.column(name, Table::Type::real);
  table.column("ap", Table::Type::real)
      .column("n_pairs", Table::Type::integer)
      .column("model", Table::Type::text);
  for (const auto& cell : cells)
    table.add({std::int64_t{cell.run}, cell.x_low, cell.x_high, cell.y_low, cell.y_high, cell.ap,
               cell.pairs, one_line(results.runs()[static_cast<std::size_t>(cell.run)].label)});
  return table;
}

struct PairAxis {
  const char* label;
  std::vector<double> low;   // (runs)
  std::vector<double> high;  // (runs)
  int ticks;
};

// Dots where a cell holds few pairs, dark on light cells and light on dark ones.
std::string plot_few_pairs(std::size_t run) {
  std::string text;
  for (const auto& [test, colour] :
       {std::pair{"$6 < 0.55", "white"}, std::pair{"$6 >= 0.55", style::kInk}})
    text += fmt::format(
        ", \\\n  data using ($1 == {} && $7 < {} && {} ? 0.5 * ($2 + $3) : NaN):(0.5 * ($4 + $5)) "
        "with points pt 7 ps 0.16*mark lc rgb '{}'",
        run, kFewPairs, test, colour);
  return text;
}

HoverCell pair_hover(const Panels& panels, const PairCell& cell, const PairAxis& x,
                     const PairAxis& y) {
  const auto run = static_cast<std::size_t>(cell.run);
  const auto box = panels.box(cell.run);
  const auto across = [&](double value) {
    return box.left + (box.right - box.left) * (value - x.low[run]) / (x.high[run] - x.low[run]);
  };
  const auto down = [&](double value) {
    return box.bottom - (box.bottom - box.top) * (value - y.low[run]) / (y.high[run] - y.low[run]);
  };
  return {across(cell.x_low), down(cell.y_high), across(cell.x_high), down(cell.y_low),
          fmt::format("{}: plasticity {:.3f}, {} pairs", cell.where, cell.ap, cell.pairs)};
}

// Panels of runs. The columns of the CSV are run, edges, ap, n_pairs.
void draw_pair_cells(const Results& results, const std::vector<PairCell>& cells, const PairAxis& x,
                     const PairAxis& y, Figure& figure) {
  const Panels panels({.count = static_cast<int>(results.runs().size()),
                       .right = 0.55,
                       .own_ranges = true,
                       .x_label = x.label,
                       .y_label = y.label});
  figure.width = panels.width();
  figure.height = panels.height();
  figure.script =
      panels.begin() + palette(style::kCividis) +
      fmt::format(
          "set cbrange [0:1]\nset cbtics 0.5\nunset grid\n"
          "set label 'plasticity' at screen {:.4f}, screen 0.5 center rotate font ',{}'\n"
          "set colorbox user origin screen {:.4f}, screen 0.3 size screen {:.4f}, screen 0.4 "
          "noborder\n",
          1 - 0.08 / figure.width, style::kSmall, 1 - 0.46 / figure.width, 0.09 / figure.width);
  const int more = results.single() ? 2 : 1;  // ticks have room for themselves
  for (std::size_t i = 0; i < results.runs().size(); ++i) {
    figure.script += panels.panel(static_cast<int>(i), results.runs()[i].title);
    figure.script += token_tics("x", x.high[i] - x.low[i], more * x.ticks) +
                     token_tics("y", y.high[i] - y.low[i], more * y.ticks);
    figure.script += fmt::format(
        "set xrange [{}:{}]\nset yrange [{}:{}]\n"
        "plot data using ($1 == {} ? $2 : NaN):4:2:3:4:5:6 with boxxyerror fillstyle solid "
        "linecolor palette",
        x.low[i], x.high[i], y.low[i], y.high[i], i);
    figure.script += plot_few_pairs(i) + "\nunset colorbox\n";
  }
  figure.script += panels.end();
  for (const auto& cell : cells) figure.hover.push_back(pair_hover(panels, cell, x, y));
}

std::string few_pairs_note(const std::vector<PairCell>& cells) {
  const bool few = std::any_of(cells.begin(), cells.end(),
                               [](const PairCell& cell) { return cell.pairs < kFewPairs; });
  return few ? fmt::format(" A dot marks cells with fewer than {} pairs.", kFewPairs) : "";
}

}  // namespace

Figure plasticity_heatmap(const Results& results) {
  const Frame& frame = results.frame("pair_heatmap");
  const DistanceBins keys(results, frame, "key_distance");
  const DistanceBins queries(results, frame, "query_distance");
  using Number = std::function<std::int64_t(std::size_t)>;
  const auto sums = pooled_pairs<Number>(
      frame, "ap", [&](std::size_t row) { return keys.number(row); },
      [&](std::size_t row) { return queries.number(row); });
  std::vector<PairCell> cells;
  for (const auto& [place, sum] : sums) {
    const int run = static_cast<int>(place[0]);
    PairCell cell{run,
                  keys.edge(run, place[1]),
                  keys.edge(run, place[1] + 1),
                  queries.edge(run, place[2]),
                  queries.edge(run, place[2] + 1),
                  sum.mean(),
                  sum.pairs,
                  ""};
    cell.where = fmt::format("keys {:.0f} to {:.0f} tokens apart, {:.0f} to {:.0f} from the query",
                             cell.x_low, cell.x_high, cell.y_low, cell.y_high);
    cells.push_back(std::move(cell));
  }
  Figure figure;
  figure.title = "Plasticity by distance";
  figure.caption =
      "Mean attention plasticity of pairs of keys, by the distance of the two keys from each other "
      "and the distance of their midpoint from the query. Pairs of all heads are pooled_pairs bin "
      "by "
      "bin; cells without pairs are white." +
      few_pairs_note(cells);
  figure.data = pair_table(
      results, cells,
      {"key_distance_low", "key_distance_high", "query_distance_low", "query_distance_high"});
  const std::vector<double> zeros(results.runs().size(), 0);
  draw_pair_cells(results, cells,
                  {"distance between keys (tokens)", zeros,
                   largest_by_run(results, frame, "key_distance_high"), 2},
                  {"distance to query (tokens)", zeros,
                   largest_by_run(results, frame, "query_distance_high"), 3},
                  figure);
  return figure;
}

Figure bucket_heatmap(const Results& results) {
  const Frame& frame = results.frame("head_bucket_plasticity");
  using Number = std::function<std::int64_t(std::size_t)>;
  const auto sums = pooled_pairs<Number>(
      frame, "ap_bucket", [&](std::size_t row) { return frame.integers("k_bucket")[row]; },
      [&](std::size_t row) { return frame.integers("q_bucket")[row]; });
  const auto runs = results.runs().size();
  PairAxis x{"bucket of the keys", std::vector<double>(runs, 1e9), std::vector<double>(runs, 0), 4};
  PairAxis y{"bucket of the query", std::vector<double>(runs, 1e9), std::vector<double>(runs, 0),
             4};
  std::vector<PairCell> cells;
  for (const auto& [place, sum] : sums) {
    const auto run = static_cast<std::size_t>(place[0]);
    const auto key = static_cast<double>(place[1]);
    const auto query = static_cast<double>(place[2]);
    cells.push_back({static_cast<int>(run), key - 0.5, key + 0.5, query - 0.5, query + 0.5,
                     sum.mean(), sum.pairs,
                     fmt::format("keys of bucket {}, query of bucket {}", place[1], place[2])});
    // The same axes for both: what lies above the diagonal is causal.
    for (PairAxis* axis : {&x, &y}) {
      axis->low[run] = std::min({axis->low[run], key - 0.5, query - 0.5});
      axis->high[run] = std::max({axis->high[run], key + 0.5, query + 0.5});
    }
  }
  for (PairAxis* axis : {&x, &y})
    for (std::size_t run = 0; run < runs; ++run)
      if (axis->low[run] > axis->high[run]) axis->low[run] = 0, axis->high[run] = 1;
  Figure figure;
  figure.title = "Plasticity by bucket";
  figure.caption =
      "Mean attention plasticity of pairs of keys within one bucket of positions, by that bucket "
      "and the query's. Mean over heads, each weighted by its pairs (head_bucket_plasticity.csv); "
      "buckets are the capture's. Cells without pairs are white." +
      few_pairs_note(cells);
  figure.data = pair_table(results, cells,
                           {"k_bucket_low", "k_bucket_high", "q_bucket_low", "q_bucket_high"});
  draw_pair_cells(results, cells, x, y, figure);
  return figure;
}

}  // namespace qkscope
