#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "analysis/methods/complement.h"
#include "analysis/results/head_runner.h"

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

// Coordinate of a row along a direction, relative to `origin`; NaN without a direction.
class ScatterAxis {
 public:
  ScatterAxis(const std::vector<double>* direction, const CentredRows& rows,
              const std::vector<double>& origin)
      : direction_(direction), rows_(rows) {
    if (direction && !origin.empty()) of_origin_ = dot(*direction, origin);
  }

  double operator()(std::size_t row) const {
    if (!direction_ || direction_->empty()) return kNan;
    const auto dim = direction_->size();
    return dot(rows_.source.vectors.subspan(row * dim, dim), *direction_) - of_origin_;
  }

 private:
  const std::vector<double>* direction_;
  const CentredRows& rows_;
  double of_origin_ = 0;
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
  const std::vector<double> no_origin;
  std::vector<ScatterAxis> axes;
  for (std::size_t i = 0; i < 4; ++i)
    axes.emplace_back(directions.plane[i], rows, i < 2 ? no_origin : pooled_mean);
  for (const auto* direction : directions.components)
    axes.emplace_back(direction, rows, pooled_mean);
  for (const auto& direction : directions.planes) axes.emplace_back(&direction, rows, pooled_mean);
  for (const auto row : evenly_spaced_rows_by_position(rows.source, count)) {
    std::vector<double> x;
    for (const auto& axis : axes) x.push_back(axis(row));
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
