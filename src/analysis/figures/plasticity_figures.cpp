// Attention plasticity against the position of the query.
#include <algorithm>
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

// Rows of the figure's CSV: first the means of all head groups, then the lines of all heads.
struct Profiles {
  Table table;
  std::size_t means = 0;                 // number of rows with means
  std::vector<std::size_t> first, last;  // (groups): rows of the heads' lines, inclusive
  bool band = false;                     // standard errors are known
  bool model_free = false;               // ap_free is known
};

// Assigns rows of head_profile to bins that all heads of a group share. Bins may be made for each
// head; where they differ between heads, the shared bins are as wide as the widest bin.
class CommonBins {
 public:
  CommonBins(const PanelGroups& groups, const Frame& frame)
      : groups_(groups),
        numbers_(frame.integers(frame.has("bin") ? "bin" : "q_bucket")),
        width_(groups.groups.size(), 0) {
    if (!frame.has("bin_low") || !frame.has("bin_high")) return;
    low_ = &frame.reals("bin_low");
    high_ = &frame.reals("bin_high");
    std::map<std::pair<std::size_t, std::int64_t>, std::pair<double, double>> edges;
    std::vector<bool> same(width_.size(), true);
    for (std::size_t row = 0; row < frame.rows(); ++row) {
      const auto group = groups.of_row[row];
      const std::pair<double, double> here = {(*low_)[row], (*high_)[row]};
      const auto found = edges.emplace(std::pair{groups.of_row[row], numbers_[row]}, here).first;
      same[group] = same[group] && found->second == here;
      width_[group] = std::max(width_[group], here.second - here.first);
    }
    for (std::size_t group = 0; group < width_.size(); ++group)
      if (same[group]) width_[group] = 0;
  }

  std::int64_t number(std::size_t row) const {
    const double width = width_[groups_.of_row[row]];
    if (!(width > 0)) return numbers_[row];
    return static_cast<std::int64_t>(0.5 * ((*low_)[row] + (*high_)[row]) / width);
  }

 private:
  const PanelGroups& groups_;
  const std::vector<std::int64_t>& numbers_;
  const std::vector<double>* low_ = nullptr;
  const std::vector<double>* high_ = nullptr;
  std::vector<double> width_;  // (groups): width of the shared bins; 0: all heads have equal bins
};

// The columns of head_profile that the figure uses.
struct ProfileColumns {
  explicit ProfileColumns(const Frame& frame)
      : position(frame.reals("position")), ap(frame.reals("ap")) {
    if (const auto name = profile_error_column(frame); !name.empty()) error = &frame.reals(name);
    if (frame.has("ap_free")) ap_free = &frame.reals("ap_free");
  }
  bool is_valid(std::size_t row) const {
    return !std::isnan(ap[row]) && !std::isnan(position[row]);
  }

  const std::vector<double>& position;
  const std::vector<double>& ap;
  const std::vector<double>* error = nullptr;
  const std::vector<double>* ap_free = nullptr;
};

// Values of several rows that become one point.
struct ProfilePoint {
  std::vector<double> positions, values, errors, free_values;

  void add(const ProfileColumns& columns, std::size_t row) {
    positions.push_back(columns.position[row]);
    values.push_back(columns.ap[row]);
    if (columns.error && !std::isnan((*columns.error)[row]))
      errors.push_back((*columns.error)[row]);
    if (columns.ap_free && !std::isnan((*columns.ap_free)[row]))
      free_values.push_back((*columns.ap_free)[row]);
  }
};

void add_means(const Results& results, const PanelGroups& groups, Profiles& profiles) {
  const Frame& frame = results.frame("head_profile");
  const ProfileColumns columns(frame);
  const CommonBins common(groups, frame);
  std::map<std::pair<std::size_t, std::int64_t>, ProfilePoint> bins;  // (group, bin)
  for (std::size_t row = 0; row < frame.rows(); ++row)
    if (columns.is_valid(row)) bins[{groups.of_row[row], common.number(row)}].add(columns, row);
  for (const auto& [place, bin] : bins) {
    const auto& group = groups.groups[place.first];
    const double mean = mean_of(bin.values);
    // Heads see the same texts, so their errors are correlated: the mean of the standard errors is
    // an upper bound of the standard error of the mean for any correlation.
    const double half = 1.96 * mean_of(bin.errors);
    profiles.band = profiles.band || !std::isnan(half);
    profiles.model_free = profiles.model_free || !bin.free_values.empty();
    profiles.table.add({as_cell(place.first), kMeanLine, mean_of(bin.positions), mean, mean - half,
                        mean + half, mean_of(bin.free_values), std::int64_t{-1}, std::int64_t{-1},
                        results.label(group.run), group.attention});
  }
  profiles.means = bins.size();
}

// Adds a line of at most kMostPoints points for every head.
void add_heads(const Results& results, const PanelGroups& groups, Profiles& profiles) {
  const Frame& frame = results.frame("head_profile");
  const ProfileColumns columns(frame);
  const auto& layers = frame.integers("layer");
  const auto& heads = frame.heads();
  profiles.first.resize(groups.groups.size());
  profiles.last.resize(groups.groups.size());
  std::int64_t line = 0;
  for (std::size_t first = 0, last = 0; first < frame.rows(); first = last, ++line) {
    std::vector<std::size_t> rows;
    for (last = first; last < frame.rows() && frame.run()[last] == frame.run()[first] &&
                       layers[last] == layers[first] && heads[last] == heads[first];
         ++last)
      if (columns.is_valid(last)) rows.push_back(last);
    const auto group = groups.of_row[first];
    const std::size_t together = (rows.size() + kMostPoints - 1) / kMostPoints;
    for (std::size_t begin = 0; begin < rows.size(); begin += together) {
      ProfilePoint point;
      for (std::size_t i = begin; i < std::min(begin + together, rows.size()); ++i)
        point.add(columns, rows[i]);
      const auto place = static_cast<std::size_t>(profiles.table.rows());
      if (profiles.last[group] == 0) profiles.first[group] = place;
      profiles.last[group] = place;
      profiles.table.add({as_cell(group), line, mean_of(point.positions), mean_of(point.values),
                          kNan, kNan, mean_of(point.free_values), layers[first], heads[first],
                          results.label(frame.run()[first]), groups.groups[group].attention});
    }
  }
}

// Plot command of one panel. The line of a head is drawn segment by segment, from the row before to
// this row. `every` restricts gnuplot to the rows of the group: there may be a hundred thousand.
std::string plot_profiles(const Profiles& profiles, std::size_t group) {
  std::string text = fmt::format(
      "l1 = -2\nx1 = 0\ny1 = 0\n"
      "plot data every ::{}::{} using (l0 = l1, x0 = x1, y0 = y1, l1 = $2, x1 = $3, y1 = $4, \\\n"
      "    $1 == {} && l0 == l1 ? x0 : NaN):(y0):(x1 - x0):(y1 - y0) \\\n"
      "    with vectors nohead lw 0.4 lc rgb '#A0888888', \\\n",
      profiles.first[group], profiles.last[group], group);
  text += fmt::format(
      "  data every ::0::{0} using ($1 == {1} ? $3 : NaN):5:6 with filledcurves fill transparent "
      "solid 0.25 noborder lc rgb '{2}', \\\n"
      "  data every ::0::{0} using ($1 == {1} ? $3 : NaN):4 with lines lw 1.4 lc rgb '{2}'",
      profiles.means - 1, group, style::kKey);
  if (profiles.model_free)
    text += fmt::format(
        ", \\\n  data every ::0::{} using ($1 == {} ? $3 : NaN):7 with lines lw 1.2 dt 2 lc rgb "
        "'{}'",
        profiles.means - 1, group, style::kQuery);
  return text + "\n";
}

}  // namespace

Figure plasticity_profile(const Results& results) {
  const Frame& frame = results.frame("head_profile");
  const PanelGroups groups(results, frame);
  Profiles profiles;
  profiles.table = empty_table(
      "integer panel, integer line, real position, real ap, real low, real high, real ap_free, "
      "integer layer, integer head, text model, text attention");
  add_means(results, groups, profiles);
  add_heads(results, groups, profiles);
  Figure figure;
  figure.title = "Plasticity against query position";
  figure.caption = fmt::format(
      "Attention plasticity over all pairs of earlier keys, against the position of the query: one "
      "grey line per head, their mean (bin by bin) in red.{}{}{}",
      profiles.model_free ? " Blue, dashed: the mean of ap_free, counted from the queries "
                            "themselves without a model of their distribution."
                          : "",
      profiles.band ? " Red band: 1.96 times the mean of the heads' standard errors over texts, at "
                      "least as wide as the 95 % interval of the mean over texts."
                    : "",
      groups.note());
  const PanelGrid grid({.count = groups.groups.size(),
                        .own_ranges = true,
                        .x_label = "query position (tokens)",
                        .y_label = "attention plasticity"});
  const bool alone = groups.groups.size() == 1;
  const auto last = largest_by_group(groups, frame, "position");
  const auto settings = fmt::format(
      "set yrange [0:1]\nset ytics {}\nunset grid\nset format x '%.0s%c'\n", alone ? 0.2 : 0.5);
  grid.draw(figure, settings, [&](std::size_t i) -> PanelGrid::Panel {
    const double step = token_step(last[i], alone ? 5 : 2);
    return {groups.groups[i].title, token_tics("x", step, is_in_thousands(step)) +
                                        fmt::format("set xrange [0:{}]\n", 1.02 * last[i]) +
                                        plot_profiles(profiles, i)};
  });
  figure.data = std::move(profiles.table);
  return figure;
}

}  // namespace qkscope
