// Heat maps of attention plasticity over pairs of keys: by the distances of the keys, and by the
// buckets of query and keys. One panel per run and attention kind.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/results.h"
#include "analysis/figures/script.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

// Cells with fewer pairs of keys get a dot: the standard error of their mean may exceed 0.1.
constexpr std::int64_t kFewPairs = 100;

// Bins of the table pair_heatmap along one axis. The bins divide the context of each head, so their
// width differs slightly between heads; heads are pooled by bin number.
struct DistanceBins {
  std::vector<std::int64_t> number;  // (rows)
  std::vector<double> width;         // (groups): width of the widest bin

  DistanceBins(const PanelGroups& groups, const ResultFrame& frame, const std::string& axis)
      : width(groups.groups.size(), 0) {
    const auto& low = frame.real_column(axis + "_low");
    const auto& high = frame.real_column(axis + "_high");
    for (std::size_t row = 0; row < frame.rows(); ++row) {
      number.push_back(std::llround(low[row] / (high[row] - low[row])));
      double& widest = width[groups.of_row[row]];
      widest = std::max(widest, high[row] - low[row]);
    }
  }
  double edge(std::int64_t group, std::int64_t bin) const {
    return static_cast<double>(bin) * width[static_cast<std::size_t>(group)];
  }
};

struct PairMean {
  double weighted = 0;
  double weight = 0;
  std::int64_t pairs = 0;

  double mean() const { return weighted / weight; }
};
using CellIndex = std::array<std::int64_t, 3>;  // group, column, row

// Mean over the pairs of all heads in a group, computed per cell. Each cell is weighted by the
// number of pairs it represents, not by the number of sampled pairs.
std::map<CellIndex, PairMean> pooled_pairs(const PanelGroups& groups, const ResultFrame& frame,
                                           const char* value,
                                           const std::vector<std::int64_t>& x_bins,
                                           const std::vector<std::int64_t>& y_bins) {
  const auto& values = frame.real_column(value);
  const auto& pairs = frame.integer_column("n_pairs");
  const auto& weights = frame.has("n_eligible") ? frame.integer_column("n_eligible") : pairs;
  std::map<CellIndex, PairMean> cells;
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if (std::isnan(values[row]) || pairs[row] == 0) continue;
    auto& sum = cells[{as_integer_cell(groups.of_row[row]), x_bins[row], y_bins[row]}];
    const auto weight = static_cast<double>(weights[row]);
    sum.weighted += values[row] * weight;
    sum.weight += weight;
    sum.pairs += pairs[row];
  }
  return cells;
}

// One cell of a heat map: its edges in axis units and the text of its tooltip.
struct PairCell {
  std::int64_t group;
  double x_low, x_high, y_low, y_high;
  double ap;
  std::int64_t pairs;
  std::string where;
};

struct PairAxis {
  std::string column;        // of the CSV: COLUMN_low and COLUMN_high
  std::vector<double> low;   // (groups)
  std::vector<double> high;  // (groups)
  int ticks;

  double step(std::size_t group, int factor) const {
    const double range = high[group] - low[group];
    const double wide = integer_tick_step(range, factor * ticks);
    if (wide < range) return wide;
    return integer_tick_step(range, 2 * factor * ticks);  // else 0 would be the only tick
  }
};

HoverCell pair_cell_tooltip(const PanelGrid& grid, const PairCell& cell, const PairAxis& x,
                            const PairAxis& y) {
  const auto group = static_cast<std::size_t>(cell.group);
  const auto box = grid.panel_hover_cell(group);
  const auto across = [&](double value) {
    return box.left +
           (box.right - box.left) * (value - x.low[group]) / (x.high[group] - x.low[group]);
  };
  const auto down = [&](double value) {
    return box.bottom -
           (box.bottom - box.top) * (value - y.low[group]) / (y.high[group] - y.low[group]);
  };
  return {across(cell.x_low), down(cell.y_high), across(cell.x_high), down(cell.y_low),
          fmt::format("{}: plasticity {:.3f}, {} pairs", cell.where, cell.ap, cell.pairs)};
}

// `cells` are those of all panels.
Figure draw_pair_map(const AnalysisResults& results, const FigureKind& kind,
                     const PanelGroups& groups, const std::vector<PairCell>& cells,
                     const PairAxis& x, const PairAxis& y) {
  Figure figure;
  figure.caption = kind.text("caption") + groups.attention_kinds_note();
  if (std::ranges::any_of(cells, [](const PairCell& cell) { return cell.pairs < kFewPairs; }))
    figure.caption += fmt::format(" A dot marks cells with fewer than {} pairs.", kFewPairs);
  figure.data = empty_table(
      fmt::format("integer panel, real {0}_low, real {0}_high, real {1}_low, real {1}_high, real "
                  "ap, integer n_pairs, text model, text attention",
                  x.column, y.column));
  for (const auto& cell : cells) {
    const auto& group = groups.groups[static_cast<std::size_t>(cell.group)];
    figure.data.add({cell.group, cell.x_low, cell.x_high, cell.y_low, cell.y_high, cell.ap,
                     cell.pairs, results.run_label(group.run), group.attention});
  }
  const PanelGrid grid(grid_options(kind, groups.groups.size()));
  const auto settings =
      gnuplot_palette_command(style::kCividis) +
      kind.fill("settings", fmt::arg("text", 1 - 0.08 / grid.width()),
                fmt::arg("left", 1 - 0.46 / grid.width()), fmt::arg("wide", 0.09 / grid.width()));
  const int factor = groups.groups.size() == 1 ? 2 : 1;  // a single panel has room for more ticks
  bool thousands = true;  // one number format for both axes of all panels
  for (std::size_t i = 0; i < groups.groups.size(); ++i)
    for (const auto* axis : {&x, &y}) thousands &= is_multiple_of_thousand(axis->step(i, factor));
  grid.draw(figure, settings, [&](std::size_t i) -> PanelGrid::Panel {
    return {groups.groups[i].title,
            token_tick_commands("x", x.step(i, factor), thousands) +
                token_tick_commands("y", y.step(i, factor), thousands) +
                kind.fill("panel", fmt::arg("x_low", x.low[i]), fmt::arg("x_high", x.high[i]),
                          fmt::arg("y_low", y.low[i]), fmt::arg("y_high", y.high[i]),
                          fmt::arg("panel", i), fmt::arg("few", kFewPairs))};
  });
  for (const auto& cell : cells) figure.hover.push_back(pair_cell_tooltip(grid, cell, x, y));
  return figure;
}

}  // namespace

Figure plasticity_heatmap(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& frame = results.frame("pair_heatmap");
  const PanelGroups groups(results, frame);
  const DistanceBins keys(groups, frame, "key_distance");
  const DistanceBins queries(groups, frame, "query_distance");
  const auto sums = pooled_pairs(groups, frame, "ap", keys.number, queries.number);
  std::vector<PairCell> cells;
  for (const auto& [place, sum] : sums) {
    const auto [group, column, row] = place;
    PairCell cell{group,
                  keys.edge(group, column),
                  keys.edge(group, column + 1),
                  queries.edge(group, row),
                  queries.edge(group, row + 1),
                  sum.mean(),
                  sum.pairs,
                  ""};
    cell.where = fmt::format("keys {:.0f} to {:.0f} tokens apart, {:.0f} to {:.0f} from the query",
                             cell.x_low, cell.x_high, cell.y_low, cell.y_high);
    cells.push_back(std::move(cell));
  }
  const std::vector<double> zeros(groups.groups.size(), 0);
  return draw_pair_map(
      results, kind, groups, cells,
      {"key_distance", zeros, largest_value_by_group(groups, frame, "key_distance_high"), 2},
      {"query_distance", zeros, largest_value_by_group(groups, frame, "query_distance_high"), 3});
}

Figure bucket_heatmap(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& frame = results.frame("head_bucket_plasticity");
  const PanelGroups groups(results, frame);
  const auto sums = pooled_pairs(groups, frame, "ap_bucket", frame.integer_column("k_bucket"),
                                 frame.integer_column("q_bucket"));
  // Both axes have the same range, so that causal cells lie above the diagonal.
  std::vector<double> low(groups.groups.size(), 1e9);
  std::vector<double> high(groups.groups.size(), 0);
  std::vector<PairCell> cells;
  for (const auto& [place, sum] : sums) {
    const auto group = static_cast<std::size_t>(place[0]);
    const auto key = static_cast<double>(place[1]);
    const auto query = static_cast<double>(place[2]);
    cells.push_back({place[0], key - 0.5, key + 0.5, query - 0.5, query + 0.5, sum.mean(),
                     sum.pairs,
                     fmt::format("keys of bucket {}, query of bucket {}", place[1], place[2])});
    low[group] = std::min({low[group], key - 0.5, query - 0.5});
    high[group] = std::max({high[group], key + 0.5, query + 0.5});
  }
  for (std::size_t i = 0; i < low.size(); ++i)
    if (low[i] > high[i]) low[i] = 0, high[i] = 1;
  return draw_pair_map(results, kind, groups, cells, {"k_bucket", low, high, 4},
                       {"q_bucket", low, high, 4});
}

}  // namespace qkscope
