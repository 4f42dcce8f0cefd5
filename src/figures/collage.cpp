// Rows of some heads on two of their axes, shaded by position.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "figures/panels.h"
#include "figures/registry.h"
#include "figures/script.h"
#include "figures/style.h"

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

std::string shades() {
  return fmt::format(
      "part(from, to, t, shift) = int((from / shift) % 256 + t * ((to / shift) % 256 - (from / "
      "shift) % 256)) * shift\n"
      "mix(from, to, t) = part(from, to, t, 65536) + part(from, to, t, 256) + part(from, to, t, "
      "1)\n"
      "query(t) = mix(0x{}, 0x{}, t)\n"
      "key(t) = mix(0x{}, 0x{}, t)\n",
      style::kQueryEarly + 1, style::kQueryLate + 1, style::kKeyEarly + 1, style::kKeyLate + 1);
}

// "queries" and "keys", each with five marks from early to late.
std::string shade_legend(double height) {
  const double y = 1 - 0.09 / height;
  std::string text;
  const auto side = [&](const char* name, const char* function, int point, double x) {
    text += fmt::format("set label '{}, early to late' at screen {:.4f}, {:.4f} font ',{}'\n", name,
                        x + 0.08, y, style::kSmall);
    for (int i = 0; i < 5; ++i)
      text += fmt::format(
          "set label '' at screen {:.4f}, {:.4f} point pt {} ps 0.5*mark lc rgb {}({})\n",
          x + 0.015 * i, y, point, function, 0.25 * i);
  };
  side("queries", "query", style::kCircle, 0.22);
  side("keys", "key", style::kSquare, 0.58);
  return text;
}

// Keys, then queries, of the panel (first column): points_of's columns.
std::string plot_points(std::size_t panel, double size) {
  return fmt::format(
      "plot data using ($1 == {0} && $2 == 1 ? $4 : NaN):5:(key($3)) with points pt {1} ps "
      "{3}*mark lc rgb variable, \\\n"
      "  data using ($1 == {0} && $2 == 0 ? $4 : NaN):5:(query($3)) with points pt {2} ps {3}*mark "
      "lc rgb variable\n",
      panel, style::kSquare, style::kCircle, size);
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
  figure.script = shades() + panels.begin() + shade_legend(figure.height) +
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
    figure.script += plot_points(i, 0.28);
  }
  figure.script += panels.end();
  figure.caption = fmt::format(
      " Blue circles are queries, red squares keys, darker the later their position. {} heads of "
      "'{}', spread evenly over those captured; of each head the rows kept in "
      "head_scatter.parquet.",
      heads.size(), one_line(run_at(results, scatter, heads.front().first).title));
  return figure;
}

// ---- All planes of one head's complement.

// Rows of head_planes that belong to one head.
struct PlanesHead {
  int run;
  std::int64_t layer;
  std::int64_t head;

  bool operator==(const PlanesHead&) const = default;
};

PlanesHead head_at(const Frame& planes, std::size_t row) {
  return {planes.run()[row], planes.integers("layer")[row], planes.heads()[row]};
}

// The head that was asked for in the last run that has it, else that run's first.
std::optional<PlanesHead> chosen_head(const Results& results, const Frame& planes) {
  std::optional<PlanesHead> found;
  for (std::size_t row = 0; row < planes.rows(); ++row) {
    const auto here = head_at(planes, row);
    const auto name = fmt::format("{}.{}", here.layer, here.head);
    if (!results.choices().head.empty() && results.choices().head != name) continue;
    if (!found || here.run > found->run) found = here;
  }
  return found;
}

// What complement.parquet says of a plane, for its title: "3: 12 %, r 0.98".
std::map<std::int64_t, std::string> plane_titles(const Results& results, const PlanesHead& head) {
  std::map<std::int64_t, std::string> titles;
  if (!results.has("complement")) return titles;
  const Frame& complement = results.frame("complement");
  for (std::size_t row = 0; row < complement.rows(); ++row)
    if (head_at(complement, row) == head)
      titles[complement.integers("pair")[row]] = fmt::format(
          "{}: {:.1f} %, {:.2f}", complement.integers("pair")[row],
          100 * complement.reals("variance_share")[row], complement.reals("angle_r")[row]);
  return titles;
}

}  // namespace

Figure head_planes(const Results& results) {
  if (!results.has("head_planes") || results.frame("head_planes").rows() == 0)
    return nothing_to_draw("no head's planes were kept: qkscope analyze --planes-of LAYER.HEAD");
  const Frame& planes = results.frame("head_planes");
  const auto head = chosen_head(results, planes);
  if (!head)
    return nothing_to_draw(
        fmt::format("no planes were kept of head {0}; analyse again with --planes-of {0}",
                    results.choices().head));
  Figure figure;
  figure.data.column("plane", Table::Type::integer)
      .column("key", Table::Type::integer)
      .column("shade", Table::Type::real)
      .column("x", Table::Type::real)
      .column("y", Table::Type::real)
      .column("position", Table::Type::integer)
      .column("layer", Table::Type::integer)
      .column("head", Table::Type::integer)
      .column("model", Table::Type::text);
  const auto& run = results.runs()[static_cast<std::size_t>(head->run)];
  std::int64_t last = 1;
  std::map<std::int64_t, double> radius;  // of the farthest point of each plane
  for (std::size_t row = 0; row < planes.rows(); ++row)
    if (head_at(planes, row) == *head) last = std::max(last, planes.integers("position")[row]);
  for (std::size_t row = 0; row < planes.rows(); ++row) {
    if (head_at(planes, row) != *head) continue;
    const auto plane = planes.integers("plane")[row];
    const auto position = planes.integers("position")[row];
    const double x = planes.reals("x")[row];
    const double y = planes.reals("y")[row];
    radius[plane] = std::max({radius[plane], std::fabs(x), std::fabs(y)});
    figure.data.add({plane, std::int64_t{planes.texts("side")[row] == "k" ? 1 : 0},
                     static_cast<double>(position) / static_cast<double>(last), x, y, position,
                     head->layer, head->head, one_line(run.label)});
  }
  const Panels panels({.count = static_cast<int>(radius.size()),
                       .columns = 6,
                       .top = 0.38,
                       .left = 0.1,
                       .x_label = "",
                       .y_label = ""});
  figure.width = panels.width();
  figure.height = panels.height();
  figure.script =
      shades() + panels.begin() + shade_legend(figure.height) +
      fmt::format("unset grid\nunset tics\nset border 15 lw 0.4 lc rgb '{}'\n", style::kFaint);
  const auto titles = plane_titles(results, *head);
  int panel = 0;
  for (const auto& [plane, farthest] : radius) {
    const auto title = titles.find(plane);
    figure.script += panels.panel(
        panel++, title == titles.end() ? fmt::format("plane {}", plane) : title->second);
    const double edge = farthest > 0 ? 1.05 * farthest : 1;
    figure.script += fmt::format("set xrange [{0}:{1}]\nset yrange [{0}:{1}]\n", -edge, edge) +
                     plot_points(static_cast<std::size_t>(plane), 0.24);
  }
  figure.script += panels.end();
  figure.title =
      fmt::format("Planes of the complement of layer {}, head {}", head->layer, head->head);
  figure.caption = fmt::format(
      "Queries (blue circles) and keys (red squares) of layer {}, head {} of '{}' on the planes of "
      "what is left without a and b: pairs of its principal axes, around the pooled mean, each on "
      "its own scale, the same across and up. Darker is later in the text; a ring along which the "
      "shade runs is a plane that turns with position. Above each: the number of the plane, its "
      "share of the variance left, and how strictly rows turn in it (angle_r, 0 to 1).",
      head->layer, head->head, one_line(run.title));
  return figure;
}

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
