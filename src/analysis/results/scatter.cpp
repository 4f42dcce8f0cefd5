#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "analysis/methods/complement.h"
#include "analysis/results/head_runner.h"
#include "base/core/numbers.h"
#include "base/core/project.h"

namespace qkscope {
namespace {

std::vector<std::size_t> evenly_spaced_rows_by_position(const RowsView& rows, int count) {
  const auto total = static_cast<std::size_t>(rows.size());
  std::vector<std::size_t> ranks(total);  // row numbers in the order of position and text
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  std::ranges::sort(
      ranks, {}, [&](std::size_t row) { return std::pair(rows.position[row], rows.example(row)); });
  const auto wanted = std::min(total, static_cast<std::size_t>(count));
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < wanted; ++i)  // the middle of each of `wanted` equal ranges of ranks
    kept.push_back(ranks[(2 * i + 1) * total / (2 * wanted)]);
  return kept;
}

// Coordinate of a row along a direction, relative to an origin; NaN without a direction.
struct ScatterAxis {
  const std::vector<double>* direction;
  double origin = 0;  // coordinate of the origin

  double coordinate(const CentredRows& rows, std::size_t row) const {
    if (!direction || direction->empty()) return kNan;
    const auto dim = direction->size();
    return dot(rows.source.vectors.subspan(row * dim, dim), *direction) - origin;
  }
};

// Directions of all coordinates of a scatter point; null where an analysis did not run.
struct Directions {
  std::array<const std::vector<double>*, 4> plane = {};  // a, b, c0, c1
  std::vector<const std::vector<double>*> components = {};
  std::vector<std::vector<double>> planes = {};  // axes 2i and 2i + 1 span plane i
};

Directions directions_of(const ScatterPlotInput& source, int pairs) {
  Directions directions;
  if (source.pca)
    for (const auto& component : source.pca->components)
      directions.components.push_back(&component.direction);
  if (!source.rotation) return directions;
  const RotationResult& rotation = *source.rotation;
  directions.plane = {&rotation.a, &rotation.b, &rotation.c0, &rotation.c1};
  if (pairs == 0 || rotation.a.empty() || rotation.b.empty()) return directions;
  const OrthogonalComplement complement =
      orthogonal_complement(source.pooled, rotation.a, rotation.b, 2 * pairs);
  for (std::int64_t i = 0; i < complement.axes.rows / 2 * 2; ++i)
    directions.planes.emplace_back(complement.axes.row(i),
                                   complement.axes.row(i) + complement.axes.cols);
  return directions;
}

void add_scatter_points(HeadKind side, const CentredRows& rows,
                        const std::vector<std::string>& tokens,
                        const std::vector<double>& pooled_mean, const Directions& directions,
                        int count, std::vector<ScatterPoint>& points) {
  std::vector<ScatterAxis> axes = {{directions.plane[0]}, {directions.plane[1]}};
  const auto add = [&](const std::vector<double>* direction) {
    axes.push_back({direction, direction ? dot(*direction, pooled_mean) : 0});
  };
  for (const auto* direction : {directions.plane[2], directions.plane[3]}) add(direction);
  for (const auto* direction : directions.components) add(direction);
  for (const auto& direction : directions.planes) add(&direction);
  for (const auto row : evenly_spaced_rows_by_position(rows.source, count)) {
    const auto x = project(axes, [&](const auto& axis) { return axis.coordinate(rows, row); });
    const auto planes = x.begin() + 4 + std::ssize(directions.components);
    points.push_back({.side = side,
                      .position = rows.source.position[row],
                      .token = tokens.empty() ? "" : tokens[row],
                      .pc = {x.begin() + 4, planes},
                      .a = x[0],
                      .b = x[1],
                      .c0 = x[2],
                      .c1 = x[3],
                      .planes = {planes, x.end()}});
  }
}

}  // namespace

std::vector<ScatterPoint> sample_scatter_points(const ScatterPlotInput& source, int per_side,
                                                int pairs) {
  const Directions directions = directions_of(source, pairs);
  std::vector<ScatterPoint> points;
  const auto& mean = source.pooled.mean;
  add_scatter_points(HeadKind::query, source.queries, source.query_tokens, mean, directions,
                     per_side, points);
  add_scatter_points(HeadKind::key, source.keys, source.key_tokens, mean, directions, per_side,
                     points);
  return points;
}

}  // namespace qkscope
