// Plasticity against the position of the query: a line per head, panels of runs.
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "figures/figure.h"
#include "figures/panels.h"
#include "figures/script.h"
#include "figures/statistics.h"
#include "figures/style.h"

namespace qkscope {
namespace {

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

}  // namespace

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

}  // namespace qkscope
