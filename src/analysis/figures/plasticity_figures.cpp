// Figures of attention plasticity (how often two keys change order over queries): profiles by query
// position, and heat maps over pairs of keys, with one panel per run and attention kind.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/figure.h"
#include "analysis/figures/results.h"
#include "base/core/numbers.h"

namespace qkscope {
namespace {

constexpr std::int64_t kMeanLine = -1;   // value of the column "line" for the mean over heads
constexpr std::size_t kMostPoints = 48;  // points of a head's line

// Returns the bin number of each row of head_profile on a grid that all heads of a panel share. If
// heads have different bins, the shared bins are as wide as the widest one.
std::vector<std::int64_t> shared_profile_bins(const PanelHeadGroups& groups,
                                              const ResultFrame& frame) {
  auto numbers = frame.integer_column(frame.has_column("bin") ? "bin" : "q_bucket");
  if (!frame.has_column("bin_low") || !frame.has_column("bin_high")) return numbers;
  const auto& low = frame.real_column("bin_low");
  const auto& high = frame.real_column("bin_high");
  std::map<std::pair<std::size_t, std::int64_t>, std::pair<double, double>> edges;
  std::vector<double> width(groups.groups.size(), 0);  // of the widest bin
  std::vector<bool> same(width.size(), true);          // all heads of the group have equal bins
  for (std::size_t row = 0; row < frame.row_count(); ++row) {
    const auto group = groups.of_row[row];
    const std::pair<double, double> here = {low[row], high[row]};
    const auto found = edges.emplace(std::pair{group, numbers[row]}, here).first;
    same[group] = same[group] && found->second == here;
    width[group] = std::max(width[group], here.second - here.first);
  }
  for (std::size_t row = 0; row < frame.row_count(); ++row)
    if (const auto group = groups.of_row[row]; !same[group] && width[group] > 0)
      numbers[row] = static_cast<std::int64_t>(0.5 * (low[row] + high[row]) / width[group]);
  return numbers;
}

// CSV of plasticity profiles: first the mean line of each panel, then one line per head.
struct PlasticityProfileTable {
  const AnalysisResults& results;
  const ResultFrame& frame;  // head_profile
  const PanelHeadGroups& groups;
  Table table = empty_table(
      "integer panel, integer line, real position, real ap, real low, real high, real ap_free, "
      "integer layer, integer head, text model, text attention");
  // First and last CSV row of the profiles of individual heads, one entry per group of heads.
  std::vector<std::size_t> first = std::vector<std::size_t>(groups.groups.size());
  std::vector<std::size_t> last = first;
  bool band = false;        // standard errors are known
  bool model_free = false;  // ap_free is known

  bool has_point(std::size_t row) const {
    return !std::isnan(frame.real_column("position")[row]) &&
           !std::isnan(frame.real_column("ap")[row]);
  }
  // Adds a point to a line: means over the given `rows` of head_profile.
  void add_point(std::size_t group, std::int64_t line, const std::vector<std::size_t>& rows,
                 std::int64_t layer = -1, std::int64_t head = -1) {
    const auto mean = [&](const std::string& column) {
      if (!frame.has_column(column)) return kNan;
      std::vector<double> values;
      const auto& all = frame.real_column(column);
      for (const auto row : rows)
        if (!std::isnan(all[row])) values.push_back(all[row]);
      return mean_of(values);
    };
    // Heads see the same texts, so their errors are correlated: the mean of the standard errors is
    // an upper bound of the standard error of the mean for any correlation.
    const double half = line == kMeanLine ? 1.96 * mean(profile_error_column(frame)) : kNan;
    const double ap = mean("ap");
    const double ap_free = mean("ap_free");
    band = band || !std::isnan(half);
    model_free = model_free || !std::isnan(ap_free);
    const auto& [run, attention, title] = groups.groups[group];
    table.add({as_integer_cell(group), line, mean("position"), ap, ap - half, ap + half, ap_free,
               layer, head, results.run_label(run), attention});
  }
};

// Adds a line of at most kMostPoints points for every head.
void add_head_lines(PlasticityProfileTable& profiles) {
  const ResultFrame& frame = profiles.frame;
  std::int64_t line = 0;
  for (std::size_t first = 0, last = 0; first < frame.row_count(); first = last, ++line) {
    std::vector<std::size_t> rows;
    const auto head = frame.head_at(first);
    for (last = first; last < frame.row_count() && frame.head_at(last) == head; ++last)
      if (profiles.has_point(last)) rows.push_back(last);
    const auto group = profiles.groups.of_row[first];
    const std::size_t together = (rows.size() + kMostPoints - 1) / kMostPoints;
    for (std::size_t begin = 0; begin < rows.size(); begin += together) {
      const auto place = as_index(profiles.table.rows());
      if (profiles.last[group] == 0) profiles.first[group] = place;
      profiles.last[group] = place;
      const auto point = std::span(rows).subspan(begin, std::min(together, rows.size() - begin));
      profiles.add_point(group, line, {point.begin(), point.end()}, head.layer, head.head);
    }
  }
}

// Cells that average fewer key pairs than this are marked with a dot, as less certain.
constexpr std::int64_t kFewPairs = 100;

struct PairMean {
  double weighted = 0;
  double weight = 0;
  std::int64_t pairs = 0;

  double mean() const { return weighted / weight; }
};
using CellIndex = std::array<std::int64_t, 3>;  // group, column, row

// Axis of a heat map over pairs of keys. Bin i of a panel starts at (i + shift) * width.
struct HeatmapAxis {
  std::string column;              // of the CSV: COLUMN_low and COLUMN_high
  std::vector<std::int64_t> bins;  // (rows of the result table)
  std::vector<double> width;       // (groups)
  double shift;
  int ticks;
  std::vector<double> low, high;  // (groups): range of the axis

  double edge(std::int64_t group, std::int64_t bin) const {
    return (static_cast<double>(bin) + shift) * width[as_index(group)];
  }
  // Maps `value` linearly from the group's axis range to the range [first, last] in the image.
  double coordinate(std::int64_t group, double value, double first, double last) const {
    const auto i = as_index(group);
    return first + (last - first) * (value - low[i]) / (high[i] - low[i]);
  }
  double tick_step(std::size_t group, int factor) const {
    const double range = high[group] - low[group];
    const double wide = integer_tick_step(range, factor * ticks);
    if (wide < range) return wide;
    return integer_tick_step(range, 2 * factor * ticks);  // else 0 would be the only tick
  }
};

// Returns the axis of the distance `column` of the table pair_heatmap. Bins divide the context of
// each head, so their width differs slightly between heads. Bins of equal number are pooled over
// the heads of a group and drawn with the width of the group's widest bin.
HeatmapAxis distance_axis(const PanelHeadGroups& groups, const ResultFrame& frame,
                          const std::string& column, int ticks) {
  const std::vector<double> zeros(groups.groups.size(), 0);
  HeatmapAxis axis{
      column, {}, zeros, 0, ticks, zeros, largest_value_by_group(groups, frame, column + "_high")};
  const auto& low = frame.real_column(column + "_low");
  const auto& high = frame.real_column(column + "_high");
  for (std::size_t row = 0; row < frame.row_count(); ++row) {
    axis.bins.push_back(std::llround(low[row] / (high[row] - low[row])));
    double& widest = axis.width[groups.of_row[row]];
    widest = std::max(widest, high[row] - low[row]);
  }
  return axis;
}

// Cells of heat maps over pairs of keys, with one panel per group of heads.
struct PairHeatmapData {
  PanelHeadGroups groups;
  HeatmapAxis x;
  HeatmapAxis y;
  std::map<CellIndex, PairMean> cells = {};

  // Pools the pairs of all heads in a group, cell by cell. Each cell is weighted by the number of
  // pairs it represents, not by the number of sampled pairs.
  void pool_pairs(const ResultFrame& frame, const char* value) {
    const auto& values = frame.real_column(value);
    const auto& pairs = frame.integer_column("n_pairs");
    const auto& weights =
        frame.has_column("n_eligible") ? frame.integer_column("n_eligible") : pairs;
    for (std::size_t row = 0; row < frame.row_count(); ++row) {
      if (std::isnan(values[row]) || pairs[row] == 0) continue;
      auto& sum = cells[{as_integer_cell(groups.of_row[row]), x.bins[row], y.bins[row]}];
      const auto weight = static_cast<double>(weights[row]);
      sum.weighted += values[row] * weight;
      sum.weight += weight;
      sum.pairs += pairs[row];
    }
  }
};

// Adds a row and a tooltip per heat map cell. The YAML key `where` describes the pairs in a cell.
void add_pair_cells(const AnalysisResults& results, const FigureKind& kind,
                    const PairHeatmapData& map, const PanelGrid& grid, Figure& figure) {
  const auto& [groups, x, y, cells] = map;
  for (const auto& [place, mean] : cells) {
    const auto [panel, column, row] = place;
    const auto& group = groups.groups[as_index(panel)];
    const double left = x.edge(panel, column);
    const double right = x.edge(panel, column + 1);
    const double low = y.edge(panel, row);
    const double high = y.edge(panel, row + 1);
    figure.data.add({panel, left, right, low, high, mean.mean(), mean.pairs,
                     results.run_label(group.run), group.attention});
    const auto box = grid.panel_tooltip_area(as_index(panel));
    figure.hover.push_back({x.coordinate(panel, left, box.left, box.right),
                            y.coordinate(panel, high, box.bottom, box.top),
                            x.coordinate(panel, right, box.left, box.right),
                            y.coordinate(panel, low, box.bottom, box.top),
                            fmt::format("{}: plasticity {:.3f}, {} pairs",
                                        kind.format("where", left, right, low, high, column, row),
                                        mean.mean(), mean.pairs)});
  }
}

Figure draw_pair_heatmap(const AnalysisResults& results, const FigureKind& kind,
                         const PairHeatmapData& map) {
  const auto& [groups, x, y, cells] = map;
  const auto panels = groups.groups.size();
  Figure figure;
  figure.caption = kind.text("caption") + groups.attention_kinds_note();
  if (std::ranges::any_of(cells, [](const auto& cell) { return cell.second.pairs < kFewPairs; }))
    figure.caption += fmt::format(" A dot marks cells with fewer than {} pairs.", kFewPairs);
  figure.data = empty_table(
      fmt::format("integer panel, real {0}_low, real {0}_high, real {1}_low, real {1}_high, real "
                  "ap, integer n_pairs, text model, text attention",
                  x.column, y.column));
  const PanelGrid grid(grid_options(kind, panels));
  add_pair_cells(results, kind, map, grid, figure);
  const auto settings = gnuplot_palette_command(style::kCividis) +
                        kind.format("settings", fmt::arg("text", 1 - 0.08 / grid.width_inches()),
                                    fmt::arg("left", 1 - 0.46 / grid.width_inches()),
                                    fmt::arg("wide", 0.09 / grid.width_inches()));
  const int factor = panels == 1 ? 2 : 1;  // a single panel has room for more ticks
  bool thousands = true;                   // one number format for both axes of all panels
  for (std::size_t i = 0; i < panels; ++i)
    for (const auto* axis : {&x, &y})
      thousands &= is_multiple_of_thousand(axis->tick_step(i, factor));
  grid.draw(figure, settings, [&](std::size_t i) -> PanelGrid::Panel {
    return {
        map.groups.groups[i].title,
        token_tick_commands("x", map.x.tick_step(i, factor), thousands) +
            token_tick_commands("y", map.y.tick_step(i, factor), thousands) +
            kind.format("panel", fmt::arg("x_low", map.x.low[i]), fmt::arg("x_high", map.x.high[i]),
                        fmt::arg("y_low", map.y.low[i]), fmt::arg("y_high", map.y.high[i]),
                        fmt::arg("panel", i), fmt::arg("few", kFewPairs))};
  });
  return figure;
}

}  // namespace

Figure draw_plasticity_profile(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& frame = results.frame("head_profile");
  const PanelHeadGroups groups(results, frame);
  PlasticityProfileTable profiles{results, frame, groups};
  const auto numbers = shared_profile_bins(groups, frame);
  std::map<std::pair<std::size_t, std::int64_t>, std::vector<std::size_t>> bins;  // (group, bin)
  for (std::size_t row = 0; row < frame.row_count(); ++row)
    if (profiles.has_point(row)) bins[{groups.of_row[row], numbers[row]}].push_back(row);
  for (const auto& [place, rows] : bins) profiles.add_point(place.first, kMeanLine, rows);
  add_head_lines(profiles);
  Figure figure;
  figure.caption =
      kind.format("caption", profiles.model_free ? kind.text("model_free_note") : "",
                  profiles.band ? kind.text("band_note") : "", groups.attention_kinds_note());
  const PanelGrid grid(grid_options(kind, groups.groups.size()));
  const bool alone = groups.groups.size() == 1;
  const auto last = largest_value_by_group(groups, frame, "position");
  const auto settings = fmt::format(
      "set yrange [0:1]\nset ytics {}\nunset grid\nset format x '%.0s%c'\n", alone ? 0.2 : 0.5);
  grid.draw(figure, settings, [&](std::size_t i) -> PanelGrid::Panel {
    const double step = integer_tick_step(last[i], alone ? 5 : 2);
    const auto fill = [&](const char* key) {
      return kind.format(key, fmt::arg("first", profiles.first[i]),
                         fmt::arg("last", profiles.last[i]), fmt::arg("group", i),
                         fmt::arg("last_mean", bins.size() - 1));
    };
    return {groups.groups[i].title, token_tick_commands("x", step, is_multiple_of_thousand(step)) +
                                        fmt::format("set xrange [0:{}]\n", 1.02 * last[i]) +
                                        fill("panel") +
                                        (profiles.model_free ? fill("model_free") : "") + "\n"};
  });
  figure.data = std::move(profiles.table);
  return figure;
}

Figure draw_plasticity_heatmap(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& frame = results.frame("pair_heatmap");
  const PanelHeadGroups groups(results, frame);
  PairHeatmapData map{groups, distance_axis(groups, frame, "key_distance", 2),
                      distance_axis(groups, frame, "query_distance", 3)};
  map.pool_pairs(frame, "ap");
  return draw_pair_heatmap(results, kind, map);
}

Figure draw_bucket_heatmap(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& frame = results.frame("head_bucket_plasticity");
  const PanelHeadGroups groups(results, frame);
  const std::vector<double> ones(groups.groups.size(), 1);
  PairHeatmapData map{groups,
                      {"k_bucket", frame.integer_column("k_bucket"), ones, -0.5, 4, {}, {}},
                      {"q_bucket", frame.integer_column("q_bucket"), ones, -0.5, 4, {}, {}}};
  map.pool_pairs(frame, "ap_bucket");
  // Use the same range for both axes, so that query bucket = key bucket is the diagonal.
  std::vector<double> low(ones.size(), 1e9);
  std::vector<double> high(ones.size(), 0);
  for (const auto& [place, mean] : map.cells) {
    const auto [group, key, query] = place;
    low[as_index(group)] = std::min(low[as_index(group)], map.x.edge(group, std::min(key, query)));
    high[as_index(group)] =
        std::max(high[as_index(group)], map.x.edge(group, std::max(key, query) + 1));
  }
  for (std::size_t i = 0; i < low.size(); ++i)
    if (low[i] > high[i]) {
      low[i] = 0;
      high[i] = 1;
    }
  map.x.low = map.y.low = low;
  map.x.high = map.y.high = high;
  return draw_pair_heatmap(results, kind, map);
}

}  // namespace qkscope
