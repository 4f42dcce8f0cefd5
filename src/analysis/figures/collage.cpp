// Rows of some heads on two of their axes, shaded by position.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "analysis/figures/panels.h"
#include "analysis/figures/registry.h"
#include "analysis/figures/script.h"
#include "analysis/figures/shaded_points.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

constexpr std::size_t kHeads = 12;

// Rows [first, last) of head_scatter: one head.
struct HeadRange {
  std::size_t first;
  std::size_t last;
};

struct Plane {
  std::string x;
  std::string y;
  std::string x_label;  // gnuplot markup
  std::string y_label;
};

// The heads of the last run that have points in this plane; rows of a head stand together.
std::vector<HeadRange> heads_of_last_run(const Frame& scatter, const Plane& plane) {
  const auto& layers = scatter.integers("layer");
  const auto& heads = scatter.integers("head");
  const int run = *std::max_element(scatter.run().begin(), scatter.run().end());
  const auto& x = scatter.reals(plane.x);
  const auto& y = scatter.reals(plane.y);
  std::vector<HeadRange> ranges;
  for (std::size_t row = 0; row < scatter.rows(); ++row) {
    if (scatter.run()[row] != run || std::isnan(x[row]) || std::isnan(y[row])) continue;
    if (ranges.empty() || ranges.back().last != row || layers[ranges.back().first] != layers[row] ||
        heads[ranges.back().first] != heads[row])
      ranges.push_back({row, row});
    ranges.back().last = row + 1;
  }
  return ranges;
}

const Run& run_at(const Results& results, const Frame& frame, std::size_t row) {
  return results.runs()[static_cast<std::size_t>(frame.run()[row])];
}

std::vector<HeadRange> evenly(const std::vector<HeadRange>& all, std::size_t count) {
  if (all.size() <= count) return all;
  std::vector<HeadRange> some;
  for (std::size_t i = 0; i < count; ++i)
    some.push_back(all[(2 * i + 1) * all.size() / (2 * count)]);
  return some;
}

// head (index of the panel), key (0: query), shade, x, y, position, layer, head, model.
Table points_of(const Results& results, const std::vector<HeadRange>& heads, const Plane& plane) {
  const Frame& scatter = results.frame("head_scatter");
  const auto& x = scatter.reals(plane.x);
  const auto& y = scatter.reals(plane.y);
  const auto& positions = scatter.integers("position");
  std::int64_t last = 1;
  for (const auto& head : heads)
    for (std::size_t row = head.first; row < head.last; ++row)
      last = std::max(last, positions[row]);
  Table table;
  table.column("panel", Table::Type::integer)
      .column("key", Table::Type::integer)
      .column("shade", Table::Type::real)
      .column(plane.x, Table::Type::real)
      .column(plane.y, Table::Type::real)
      .column("position", Table::Type::integer)
      .column("layer", Table::Type::integer)
      .column("head", Table::Type::integer)
      .column("model", Table::Type::text);
  for (std::size_t i = 0; i < heads.size(); ++i)
    for (std::size_t row = heads[i].first; row < heads[i].last; ++row)
      table.add({static_cast<std::int64_t>(i),
                 std::int64_t{scatter.texts("side")[row] == "k" ? 1 : 0},
                 static_cast<double>(positions[row]) / static_cast<double>(last), x[row], y[row],
                 positions[row], scatter.integers("layer")[row], scatter.integers("head")[row],
                 one_line(scatter.texts("model")[row])});
  return table;
}

// Between ticks for the values of one head.
double step_over(const std::vector<double>& values, const HeadRange& head) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (std::size_t row = head.first; row < head.last; ++row) {
    if (std::isnan(values[row])) continue;
    low = std::min(low, values[row]);
    high = std::max(high, values[row]);
  }
  return round_step(high - low, 3);
}

Figure collage(const Results& results, const Plane& plane) {
  const Frame& scatter = results.frame("head_scatter");
  for (const auto& axis : {plane.x, plane.y})
    if (!scatter.has(axis))
      return nothing_to_draw(fmt::format(
          "head_scatter.parquet has no column {}; analyse again with as many --components", axis));
  const auto heads = evenly(heads_of_last_run(scatter, plane), kHeads);
  if (heads.empty()) return nothing_to_draw("none of its numbers exists");
  Figure figure;
  figure.data = points_of(results, heads, plane);
  const Panels panels({.count = static_cast<int>(heads.size()),
                       .columns = 4,
                       .aspect = 0.78,
                       .top = 0.38,
                       .own_ranges = true,
                       .x_label = plane.x_label,
                       .y_label = plane.y_label});
  figure.width = panels.width();
  figure.height = panels.height();
  figure.script = shade_functions() + panels.begin() + shade_legend(figure.height) +
                  "unset grid\nset offsets graph 0.05, graph 0.05, graph 0.05, graph 0.05\n";
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const auto row = heads[i].first;
    const bool nope = scatter.texts("rope")[row] == "nope";
    figure.script += panels.panel(
        static_cast<int>(i), fmt::format("layer {}, head {}{}", scatter.integers("layer")[row],
                                         scatter.integers("head")[row], nope ? " (NoPE)" : ""));
    figure.script +=
        fmt::format("set xtics {}\nset ytics {}\n", step_over(scatter.reals(plane.x), heads[i]),
                    step_over(scatter.reals(plane.y), heads[i]));
    figure.script += plot_shaded_points(i, 0.28);
  }
  figure.script += panels.end();
  figure.caption = fmt::format(
      " Blue circles are queries, red squares keys, darker the later their position. {} heads of "
      "'{}', spread evenly over those captured; of each head the rows kept in "
      "head_scatter.parquet.",
      heads.size(), one_line(run_at(results, scatter, heads.front().first).title));
  return figure;
}

}  // namespace

Figure qk_collage(const Results& results) {
  const auto [x, y] = results.choices().components;
  Figure figure = collage(results, {fmt::format("pc{}", x), fmt::format("pc{}", y),
                                    fmt::format("PC{}", x), fmt::format("PC{}", y)});
  figure.title = fmt::format("Queries and keys on components {} and {}", x, y);
  figure.caption =
      fmt::format(
          "Rows of single heads on their combined principal components {} and {}, counted "
          "from 0.",
          x, y) +
      figure.caption;
  return figure;
}

Figure ab_plane_collage(const Results& results) {
  Figure figure = collage(results, {"a", "b", "{/:Italic a} (drift with position)",
                                    "{/:Italic b} (queries apart from keys)"});
  figure.title = "Queries and keys in the plane of drift and separation";
  figure.caption =
      "Rows of single heads in the (a, b) plane: a is the direction of covariance with position, b "
      "separates the means of queries and keys." +
      figure.caption;
  return figure;
}

Figure complement_collage(const Results& results) {
  Figure figure = collage(
      results, {"c0", "c1", "first axis of the complement", "second axis of the complement"});
  figure.title = "Queries and keys outside the plane of drift and separation";
  figure.caption =
      "Rows of single heads on the first pair of singular vectors of what is left without a and b. "
      "A ring along which position runs is a rotating plane." +
      figure.caption;
  return figure;
}

}  // namespace qkscope
