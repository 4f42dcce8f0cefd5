// Figures of attention plasticity by query position.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/results.h"
#include "analysis/figures/script.h"
#include "analysis/figures/style.h"
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

}  // namespace qkscope
