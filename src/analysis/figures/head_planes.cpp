// One head on every plane of its complement.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "analysis/figures/panels.h"
#include "analysis/figures/registry.h"
#include "analysis/figures/script.h"
#include "analysis/figures/shaded_points.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

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

Table plane_points(const Results& results, const PlanesHead& head) {
  const Frame& planes = results.frame("head_planes");
  const auto& positions = planes.integers("position");
  Table table;
  table.column("plane", Table::Type::integer)
      .column("key", Table::Type::integer)
      .column("shade", Table::Type::real)
      .column("x", Table::Type::real)
      .column("y", Table::Type::real)
      .column("position", Table::Type::integer)
      .column("layer", Table::Type::integer)
      .column("head", Table::Type::integer)
      .column("model", Table::Type::text);
  std::int64_t last = 1;
  for (std::size_t row = 0; row < planes.rows(); ++row)
    if (head_at(planes, row) == head) last = std::max(last, positions[row]);
  const auto& label = results.runs()[static_cast<std::size_t>(head.run)].label;
  for (std::size_t row = 0; row < planes.rows(); ++row)
    if (head_at(planes, row) == head)
      table.add(
          {planes.integers("plane")[row], std::int64_t{planes.texts("side")[row] == "k" ? 1 : 0},
           static_cast<double>(positions[row]) / static_cast<double>(last), planes.reals("x")[row],
           planes.reals("y")[row], positions[row], head.layer, head.head, one_line(label)});
  return table;
}

// How far the farthest point of each plane is out, along either axis.
std::map<std::int64_t, double> plane_sizes(const Table& points) {
  std::map<std::int64_t, double> sizes;
  const auto& planes = points.find("plane")->integers;
  for (std::size_t row = 0; row < planes.size(); ++row)
    for (const char* axis : {"x", "y"}) {
      double& size = sizes[planes[row]];
      size = std::max(size, std::fabs(points.find(axis)->reals[row]));
    }
  return sizes;
}

void draw_planes(const Results& results, const PlanesHead& head, Figure& figure) {
  const auto sizes = plane_sizes(figure.data);
  const auto titles = plane_titles(results, head);
  const Panels panels({.count = static_cast<int>(sizes.size()),
                       .columns = 6,
                       .top = 0.38,
                       .left = 0.1,
                       .x_label = "",
                       .y_label = ""});
  figure.width = panels.width();
  figure.height = panels.height();
  figure.script =
      shade_functions() + panels.begin() + shade_legend(figure.height) +
      fmt::format("unset grid\nunset tics\nset border 15 lw 0.4 lc rgb '{}'\n", style::kFaint);
  int panel = 0;
  for (const auto& [plane, size] : sizes) {
    const auto title = titles.find(plane);
    figure.script += panels.panel(
        panel++, title == titles.end() ? fmt::format("plane {}", plane) : title->second);
    const double edge = size > 0 ? 1.05 * size : 1;
    figure.script += fmt::format("set xrange [{0}:{1}]\nset yrange [{0}:{1}]\n", -edge, edge) +
                     plot_shaded_points(static_cast<std::size_t>(plane), 0.24);
  }
  figure.script += panels.end();
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
  figure.data = plane_points(results, *head);
  draw_planes(results, *head, figure);
  figure.title =
      fmt::format("Planes of the complement of layer {}, head {}", head->layer, head->head);
  figure.caption = fmt::format(
      "Queries (blue circles) and keys (red squares) of layer {}, head {} of '{}' on the planes of "
      "what is left without a and b: pairs of its principal axes, around the pooled mean, each on "
      "its own scale, the same across and up. Darker is later in the text; a ring along which the "
      "shade runs is a plane that turns with position. Above each: the number of the plane, its "
      "share of the variance left, and how strictly rows turn in it (angle_r, 0 to 1).",
      head->layer, head->head, one_line(results.runs()[static_cast<std::size_t>(head->run)].title));
  return figure;
}

}  // namespace qkscope
