// Attention plasticity over the runs, and against the position of the query.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/panels.h"
#include "analysis/figures/registry.h"
#include "analysis/figures/run_axis.h"
#include "analysis/figures/run_series.h"
#include "analysis/figures/script.h"
#include "analysis/figures/style.h"
#include "base/core/nan.h"

namespace qkscope {
namespace {

// ---- Against the position of the query: a line per head, panels of runs.

constexpr std::int64_t kMeanLine = -1;
constexpr std::size_t kMostPoints = 48;  // of a head's line; more cannot be seen, only stored

struct Profiles {
  // run, line (kMeanLine: mean over heads), position, ap, low, high (of the mean), layer, head,
  // model. First the means.
  Table table;
  std::size_t means = 0;                 // rows of means
  std::vector<std::size_t> first, last;  // (runs): where the rows of its heads are
  bool band = false;
};

Table empty_profiles() {
  Table table;
  table.column("run", Table::Type::integer)
      .column("line", Table::Type::integer)
      .column("position", Table::Type::real)
      .column("ap", Table::Type::real)
      .column("low", Table::Type::real)
      .column("high", Table::Type::real)
      .column("layer", Table::Type::integer)
      .column("head", Table::Type::integer)
      .column("model", Table::Type::text);
  return table;
}

// The number that bins of different heads are put together by. Older results have the capture's
// buckets, which are the same for all heads. Bins are made for each head; where they differ, heads
// meet in bins as wide as the widest.
class CommonBins {
 public:
  CommonBins(const Results& results, const Frame& frame)
      : frame_(frame),
        numbers_(frame.integers(frame.has("bin") ? "bin" : "q_bucket")),
        width_(results.runs().size(), 0) {
    if (!frame.has("bin_low") || !frame.has("bin_high")) return;
    low_ = &frame.reals("bin_low");
    high_ = &frame.reals("bin_high");
    std::map<std::pair<int, std::int64_t>, std::pair<double, double>> edges;
    std::vector<bool> same(width_.size(), true);
    for (std::size_t row = 0; row < frame.rows(); ++row) {
      const auto run = static_cast<std::size_t>(frame.run()[row]);
      const std::pair<double, double> here = {(*low_)[row], (*high_)[row]};
      const auto found = edges.emplace(std::pair{frame.run()[row], numbers_[row]}, here).first;
      same[run] = same[run] && found->second == here;
      width_[run] = std::max(width_[run], here.second - here.first);
    }
    for (std::size_t run = 0; run < width_.size(); ++run)
      if (same[run]) width_[run] = 0;
  }

  std::int64_t of(std::size_t row) const {
    const double width = width_[static_cast<std::size_t>(frame_.run()[row])];
    if (!(width > 0)) return numbers_[row];
    return static_cast<std::int64_t>(0.5 * ((*low_)[row] + (*high_)[row]) / width);
  }

 private:
  const Frame& frame_;
  const std::vector<std::int64_t>& numbers_;
  const std::vector<double>* low_ = nullptr;
  const std::vector<double>* high_ = nullptr;
  std::vector<double> width_;  // (runs): of the common bins; 0: the heads' own
};

// Values of all heads in one common bin.
struct CommonBin {
  std::vector<double> positions;
  std::vector<double> values;
  std::vector<double> errors;
};

void add_means(const Results& results, Profiles& profiles) {
  const Frame& frame = results.frame("head_profile");
  const auto& positions = frame.reals("position");
  const auto& values = frame.reals("ap");
  const std::string error = profile_error_column(frame);
  const auto* errors = error.empty() ? nullptr : &frame.reals(error);
  const CommonBins common(results, frame);
  std::map<std::pair<int, std::int64_t>, CommonBin> bins;
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if (std::isnan(values[row]) || std::isnan(positions[row])) continue;
    auto& bin = bins[{frame.run()[row], common.of(row)}];
    bin.positions.push_back(positions[row]);
    bin.values.push_back(values[row]);
    if (errors && !std::isnan((*errors)[row])) bin.errors.push_back((*errors)[row]);
  }
  for (const auto& [place, bin] : bins) {
    const double mean = mean_of(bin.values);
    // Errors of heads go together: they look at the same texts. The error of a mean is at most the
    // mean of the errors, whatever they have in common.
    const double half = 1.96 * mean_of(bin.errors);
    profiles.band = profiles.band || !std::isnan(half);
    profiles.table.add({std::int64_t{place.first}, kMeanLine, mean_of(bin.positions), mean,
                        mean - half, mean + half, std::int64_t{-1}, std::int64_t{-1},
                        one_line(results.runs()[static_cast<std::size_t>(place.first)].label)});
  }
  profiles.means = bins.size();
}

// Rows [first, last) of head_profile, one head, as a line of at most kMostPoints points.
void add_head_line(const Results& results, std::size_t first, std::size_t last, std::int64_t line,
                   Profiles& profiles) {
  const Frame& frame = results.frame("head_profile");
  const auto run = static_cast<std::size_t>(frame.run()[first]);
  std::vector<std::size_t> rows;
  for (std::size_t row = first; row < last; ++row)
    if (!std::isnan(frame.reals("ap")[row]) && !std::isnan(frame.reals("position")[row]))
      rows.push_back(row);
  const std::size_t together = (rows.size() + kMostPoints - 1) / kMostPoints;
  for (std::size_t begin = 0; begin < rows.size(); begin += together) {
    std::vector<double> positions;
    std::vector<double> values;
    for (std::size_t i = begin; i < std::min(begin + together, rows.size()); ++i) {
      positions.push_back(frame.reals("position")[rows[i]]);
      values.push_back(frame.reals("ap")[rows[i]]);
    }
    const auto place = static_cast<std::size_t>(profiles.table.rows());
    if (profiles.last[run] == 0) profiles.first[run] = place;
    profiles.last[run] = place;
    profiles.table.add({static_cast<std::int64_t>(run), line, mean_of(positions), mean_of(values),
                        kNan, kNan, frame.integers("layer")[first], frame.heads()[first],
                        one_line(results.runs()[run].label)});
  }
}

void add_heads(const Results& results, Profiles& profiles) {
  const Frame& frame = results.frame("head_profile");
  const auto& layers = frame.integers("layer");
  const auto& heads = frame.heads();
  profiles.first.resize(results.runs().size());
  profiles.last.resize(results.runs().size());
  std::int64_t line = 0;
  for (std::size_t first = 0; first < frame.rows(); ++line) {
    std::size_t last = first + 1;
    while (last < frame.rows() && frame.run()[last] == frame.run()[first] &&
           layers[last] == layers[first] && heads[last] == heads[first])
      ++last;
    add_head_line(results, first, last, line, profiles);
    first = last;
  }
}

}  // namespace

Figure plasticity_trajectory(const Results& results) {
  const Frame& metrics = results.frame("head_metrics");
  const Frame& rotated = results.frame("rotated");
  RunTable table(results);
  const auto first =
      table.add_mean("ap_first20", by_run(results, metrics, metrics.reals("ap_first20")),
                     {.quantity = "ap_first20"});
  const auto last = table.add_mean(
      "ap_last20", by_run(results, metrics, metrics.reals("ap_last20")), {.quantity = "ap_last20"});
  const auto biases = by_run(results, rotated, rotated.reals("bias_strength"));
  const auto bias = table.add_mean("bias_strength", biases, {.quantity = "bias_strength"});
  const Unit unit = unit_for(biases, "per token");
  const auto no_band = [](Series series) {
    series.low = series.high = series.middle;
    return series;
  };
  const std::vector<Series> ends = {
      no_band(
          RunTable::mean_series("first 20 % of positions", style::kQuery, style::kCircle, first)),
      no_band(RunTable::mean_series("last 20 %", style::kNope, style::kSquare, last))};
  const std::vector<Series> below = {
      no_band(RunTable::mean_series("", style::kAccent, style::kCircle, bias))};
  Figure figure;
  figure.title = "Plasticity at the beginning and the end of the context";
  figure.caption =
      "Above: attention plasticity averaged over the first (ap_first20) and the last fifth "
      "(ap_last20) of query positions, means over heads; the gap between them is shaded. "
      "Below: mean bias strength (mu_q_a alpha_k, per token). Dashed lines separate phases." +
      table.bars_note();
  const auto shaded =
      fmt::format("  data using 1:{}:{} with filledcurves fill solid noborder lc rgb '{}', \\\n",
                  first.first, last.first, style::kHair);
  const auto runs = results.runs().size();
  draw_trajectories(
      results,
      {{"attention plasticity", "set yrange [0:1]\nset ytics 0.2\n",
        with_lines(plot_series(ends, runs), shaded)},
       {fmt::format("mean bias ({})", unit.text), "set yrange [*<0:*]\nset ytics autofreq\n",
        plot_series(below, runs, unit.scale), all_empty(biases)}},
      {.key = key_of(ends)}, figure);
  figure.data = table.table();
  return figure;
}

Figure plasticity_profile(const Results& results) {
  Figure figure;
  figure.title = "Plasticity against query position";
  figure.caption =
      "Attention plasticity over all pairs of earlier keys, against the position of the query: one "
      "grey line per head, their mean (bin by bin) in red.";
  Profiles profiles{.table = empty_profiles(), .first = {}, .last = {}};
  add_means(results, profiles);
  add_heads(results, profiles);
  if (profiles.band)
    figure.caption +=
        " Red band: 1.96 times the mean of the heads' standard errors over texts, at least as wide "
        "as the 95 % interval of the mean over texts.";
  const Panels panels({.count = static_cast<int>(results.runs().size()),
                       .own_ranges = true,
                       .x_label = "query position (tokens)",
                       .y_label = "attention plasticity"});
  figure.width = panels.width();
  figure.height = panels.height();
  const auto last = largest_by_run(results, results.frame("head_profile"), "position");
  figure.script = panels.begin() + fmt::format(
                                       "set yrange [0:1]\nset ytics {}\nunset grid\n"
                                       "set format x '%.0s%c'\n",
                                       results.single() ? 0.2 : 0.5);
  // A head's line is drawn piece by piece, from the row before to this one. Only the rows of the
  // run are looked at: there may be a hundred thousand.
  for (std::size_t i = 0; i < results.runs().size(); ++i) {
    figure.script += panels.panel(static_cast<int>(i), results.runs()[i].title);
    figure.script += token_tics("x", last[i], results.single() ? 5 : 2);
    figure.script += fmt::format(
        "set xrange [0:{}]\nl1 = -2\nx1 = 0\ny1 = 0\n"
        "plot data every ::{}::{} using (l0 = l1, x0 = x1, y0 = y1, l1 = $2, x1 = $3, y1 = $4, \\\n"
        "    $1 == {} && l0 == l1 ? x0 : NaN):(y0):(x1 - x0):(y1 - y0) \\\n"
        "    with vectors nohead lw 0.4 lc rgb '#A0888888', \\\n",
        1.02 * last[i], profiles.first[i], profiles.last[i], i);
    figure.script += fmt::format(
        "  data every ::0::{0} using ($1 == {1} ? $3 : NaN):5:6 with filledcurves fill transparent "
        "solid 0.25 noborder lc rgb '{2}', \\\n"
        "  data every ::0::{0} using ($1 == {1} ? $3 : NaN):4 with lines lw 1.4 lc rgb '{2}'\n",
        profiles.means - 1, i, style::kKey);
  }
  figure.script += panels.end();
  figure.data = std::move(profiles.table);
  return figure;
}

}  // namespace qkscope
