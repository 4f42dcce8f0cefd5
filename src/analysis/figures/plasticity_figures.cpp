// Figures of attention plasticity: profiles by query position, and heat maps over pairs of keys
// (by their distances, or by buckets) with one panel per run and attention kind.
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

// Data of the figure: first the mean line of each head group, then one line per head.
struct ProfileTable {
  Table table;
  std::size_t means = 0;                 // number of rows with means
  std::vector<std::size_t> first, last;  // (groups): rows of the heads' lines, inclusive
  bool band = false;                     // standard errors are known
  bool model_free = false;               // ap_free is known
};

// Shape (rows of head_profile): bin number on a grid shared by all heads of a group. If heads have
// different bins, the shared bins are as wide as the widest one.
std::vector<std::int64_t> shared_bins(const PanelGroups& groups, const ResultFrame& frame) {
  auto numbers = frame.integer_column(frame.has("bin") ? "bin" : "q_bucket");
  if (!frame.has("bin_low") || !frame.has("bin_high")) return numbers;
  const auto& low = frame.real_column("bin_low");
  const auto& high = frame.real_column("bin_high");
  std::map<std::pair<std::size_t, std::int64_t>, std::pair<double, double>> edges;
  std::vector<double> width(groups.groups.size(), 0);  // of the widest bin
  std::vector<bool> same(width.size(), true);          // all heads of the group have equal bins
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    const auto group = groups.of_row[row];
    const std::pair<double, double> here = {low[row], high[row]};
    const auto found = edges.emplace(std::pair{group, numbers[row]}, here).first;
    same[group] = same[group] && found->second == here;
    width[group] = std::max(width[group], here.second - here.first);
  }
  for (std::size_t row = 0; row < frame.rows(); ++row)
    if (const auto group = groups.of_row[row]; !same[group] && width[group] > 0)
      numbers[row] = static_cast<std::int64_t>(0.5 * (low[row] + high[row]) / width[group]);
  return numbers;
}

// Columns of head_profile used in the figure; nullptr for columns that the table does not have.
struct ProfileColumns {
  explicit ProfileColumns(const ResultFrame& frame) {
    const auto error = profile_error_column(frame);
    columns = {&frame.real_column("position"), &frame.real_column("ap"),
               error.empty() ? nullptr : &frame.real_column(error),
               frame.has("ap_free") ? &frame.real_column("ap_free") : nullptr};
  }
  bool is_valid(std::size_t row) const {
    return !std::isnan((*columns[0])[row]) && !std::isnan((*columns[1])[row]);
  }

  std::array<const std::vector<double>*, 4> columns;
};

// One point of a plotted line: means over several rows of head_profile, ignoring NaN.
struct LinePoint {
  std::array<std::vector<double>, 4> values;  // of each column of ProfileColumns

  void add(const ProfileColumns& profile, std::size_t row) {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (const auto* column = profile.columns[i]; column && !std::isnan((*column)[row]))
        values[i].push_back((*column)[row]);
  }
  double position() const { return mean_of(values[0]); }
  double ap() const { return mean_of(values[1]); }
  double error() const { return mean_of(values[2]); }
  double ap_free() const { return mean_of(values[3]); }
};

void add_mean_lines(const AnalysisResults& results, const PanelGroups& groups,
                    ProfileTable& profiles) {
  const ResultFrame& frame = results.frame("head_profile");
  const ProfileColumns columns(frame);
  const auto numbers = shared_bins(groups, frame);
  std::map<std::pair<std::size_t, std::int64_t>, LinePoint> bins;  // (group, bin)
  for (std::size_t row = 0; row < frame.rows(); ++row)
    if (columns.is_valid(row)) bins[{groups.of_row[row], numbers[row]}].add(columns, row);
  for (const auto& [place, bin] : bins) {
    const auto& group = groups.groups[place.first];
    // Heads see the same texts, so their errors are correlated: the mean of the standard errors is
    // an upper bound of the standard error of the mean for any correlation.
    const double half = 1.96 * bin.error();
    profiles.band = profiles.band || !std::isnan(half);
    profiles.model_free = profiles.model_free || !std::isnan(bin.ap_free());
    profiles.table.add({as_integer_cell(place.first), kMeanLine, bin.position(), bin.ap(),
                        bin.ap() - half, bin.ap() + half, bin.ap_free(), std::int64_t{-1},
                        std::int64_t{-1}, results.run_label(group.run), group.attention});
  }
  profiles.means = bins.size();
}

// Adds a line of at most kMostPoints points for every head.
void add_head_lines(const AnalysisResults& results, const PanelGroups& groups,
                    ProfileTable& profiles) {
  const ResultFrame& frame = results.frame("head_profile");
  const ProfileColumns columns(frame);
  const auto& layers = frame.integer_column("layer");
  const auto& heads = frame.head_column();
  profiles.first.resize(groups.groups.size());
  profiles.last.resize(groups.groups.size());
  std::int64_t line = 0;
  for (std::size_t first = 0, last = 0; first < frame.rows(); first = last, ++line) {
    std::vector<std::size_t> rows;
    for (last = first;
         last < frame.rows() && frame.run_indices()[last] == frame.run_indices()[first] &&
         layers[last] == layers[first] && heads[last] == heads[first];
         ++last)
      if (columns.is_valid(last)) rows.push_back(last);
    const auto group = groups.of_row[first];
    const std::size_t together = (rows.size() + kMostPoints - 1) / kMostPoints;
    for (std::size_t begin = 0; begin < rows.size(); begin += together) {
      LinePoint point;
      for (std::size_t i = begin; i < std::min(begin + together, rows.size()); ++i)
        point.add(columns, rows[i]);
      const auto place = static_cast<std::size_t>(profiles.table.rows());
      if (profiles.last[group] == 0) profiles.first[group] = place;
      profiles.last[group] = place;
      profiles.table.add({as_integer_cell(group), line, point.position(), point.ap(), kNan, kNan,
                          point.ap_free(), layers[first], heads[first],
                          results.run_label(frame.run_indices()[first]),
                          groups.groups[group].attention});
    }
  }
}

// Returns the plot command of one panel.
std::string plot_profiles(const FigureKind& kind, const ProfileTable& profiles, std::size_t group) {
  const auto last_mean = profiles.means - 1;
  auto text = kind.fill("panel", fmt::arg("first", profiles.first[group]),
                        fmt::arg("last", profiles.last[group]), fmt::arg("group", group),
                        fmt::arg("last_mean", last_mean));
  if (profiles.model_free)
    text += kind.fill("model_free", fmt::arg("group", group), fmt::arg("last_mean", last_mean));
  return text + "\n";
}

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

Figure plasticity_profile(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& frame = results.frame("head_profile");
  const PanelGroups groups(results, frame);
  ProfileTable profiles;
  profiles.table = empty_table(
      "integer panel, integer line, real position, real ap, real low, real high, real ap_free, "
      "integer layer, integer head, text model, text attention");
  add_mean_lines(results, groups, profiles);
  add_head_lines(results, groups, profiles);
  Figure figure;
  figure.caption = kind.fill(
      "caption",
      profiles.model_free ? " Blue, dashed: the mean of ap_free, counted from the queries "
                            "themselves without a model of their distribution."
                          : "",
      profiles.band ? " Red band: 1.96 times the mean of the heads' standard errors over texts, at "
                      "least as wide as the 95 % interval of the mean over texts."
                    : "",
      groups.attention_kinds_note());
  const PanelGrid grid(grid_options(kind, groups.groups.size()));
  const bool alone = groups.groups.size() == 1;
  const auto last = largest_value_by_group(groups, frame, "position");
  const auto settings = fmt::format(
      "set yrange [0:1]\nset ytics {}\nunset grid\nset format x '%.0s%c'\n", alone ? 0.2 : 0.5);
  grid.draw(figure, settings, [&](std::size_t i) -> PanelGrid::Panel {
    const double step = integer_tick_step(last[i], alone ? 5 : 2);
    return {groups.groups[i].title, token_tick_commands("x", step, is_multiple_of_thousand(step)) +
                                        fmt::format("set xrange [0:{}]\n", 1.02 * last[i]) +
                                        plot_profiles(kind, profiles, i)};
  });
  figure.data = std::move(profiles.table);
  return figure;
}

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
