#include <algorithm>
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

// Direction of a coordinate of scatter points, and the coordinate of its origin.
struct ScatterAxis {
  std::vector<double> direction;  // empty: the coordinate is NaN
  double origin = 0;

  double coordinate(const CentredRows& rows, std::size_t row) const {
    if (direction.empty()) return kNan;
    const auto dim = direction.size();
    return dot(rows.source.vectors.subspan(row * dim, dim), direction) - origin;
  }
};

// Returns the axes a, b, c0 and c1, then those of the principal components, then two axes of each
// plane of the complement. Coordinates other than a and b are relative to the pooled mean.
std::vector<ScatterAxis> scatter_axes(const ScatterPlotInput& source, int pairs) {
  static const RotationResult kNoRotation;
  const RotationResult& rotation = source.rotation ? *source.rotation : kNoRotation;
  std::vector<ScatterAxis> axes = {{rotation.a}, {rotation.b}};
  const auto add = [&](const std::vector<double>& direction) {
    axes.push_back({direction, direction.empty() ? 0 : dot(direction, source.pooled.mean)});
  };
  add(rotation.c0);
  add(rotation.c1);
  if (source.pca)
    for (const auto& component : source.pca->components) add(component.direction);
  if (pairs == 0 || rotation.a.empty() || rotation.b.empty()) return axes;
  const Matrix planes =
      orthogonal_complement(source.pooled, rotation.a, rotation.b, 2 * pairs).axes;
  for (std::int64_t i = 0; i < planes.rows / 2 * 2; ++i)
    add({planes.row(i), planes.row(i) + planes.cols});
  return axes;
}

}  // namespace

std::vector<ScatterPoint> sample_scatter_points(const ScatterPlotInput& source, int per_side,
                                                int pairs) {
  const auto axes = scatter_axes(source, pairs);
  const auto components = source.pca ? std::ssize(source.pca->components) : 0;
  std::vector<ScatterPoint> points;
  for (const auto side : {HeadKind::query, HeadKind::key}) {
    const bool query = side == HeadKind::query;
    const CentredRows& rows = query ? source.queries : source.keys;
    const auto& tokens = query ? source.query_tokens : source.key_tokens;
    for (const auto row : evenly_spaced_rows_by_position(rows.source, per_side)) {
      const auto x = project(axes, [&](const auto& axis) { return axis.coordinate(rows, row); });
      const auto planes = x.begin() + 4 + components;
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
  return points;
}

}  // namespace qkscope
