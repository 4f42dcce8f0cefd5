#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "analysis/methods/complement.h"
#include "analysis/results/head_runner.h"

namespace qkscope {
namespace {

// Finds rows by rank in the order of position and text. Rows are binned by position, and a bin is
// sorted on its first use: only a few ranks are needed.
class PositionRanks {
 public:
  explicit PositionRanks(const RowsView& rows) : rows_(rows), order_(rows.position.size()) {
    if (order_.empty()) return;
    const auto [low, high] = std::minmax_element(rows.position.begin(), rows.position.end());
    const std::int64_t first = *low;
    const std::int64_t width = (*high - first) / static_cast<std::int64_t>(kBins) + 1;
    const auto bin = [&](std::size_t row) {
      return static_cast<std::size_t>((rows.position[row] - first) / width);
    };
    for (std::size_t i = 0; i < order_.size(); ++i) ++begin_[bin(i) + 1];
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
    auto next = begin_;
    for (std::size_t i = 0; i < order_.size(); ++i) order_[next[bin(i)]++] = i;
  }

  std::size_t row_at(std::size_t rank) {
    const auto bin = static_cast<std::size_t>(std::upper_bound(begin_.begin(), begin_.end(), rank) -
                                              begin_.begin() - 1);
    if (!std::exchange(sorted_[bin], true))
      std::sort(order_.data() + begin_[bin], order_.data() + begin_[bin + 1],
                [&](std::size_t i, std::size_t j) {
                  return std::tuple(rows_.position[i], rows_.example(i)) <
                         std::tuple(rows_.position[j], rows_.example(j));
                });
    return order_[rank];
  }

 private:
  static constexpr std::size_t kBins = 1024;

  const RowsView& rows_;
  std::vector<std::size_t> order_;              // shape (rows): row indices, grouped by bin
  std::array<std::size_t, kBins + 1> begin_{};  // first place of each bin in order_
  std::array<bool, kBins> sorted_{};
};

std::vector<std::size_t> evenly_spaced_rows_by_position(const RowsView& rows, int count) {
  PositionRanks ranks(rows);
  const auto total = static_cast<std::size_t>(rows.size());
  const auto wanted = std::min(total, static_cast<std::size_t>(count));
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < wanted; ++i)  // the middle of each of `wanted` equal ranges of ranks
    kept.push_back(ranks.row_at((2 * i + 1) * total / (2 * wanted)));
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
    if (!direction_ || direction_->empty()) return std::numeric_limits<double>::quiet_NaN();
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
