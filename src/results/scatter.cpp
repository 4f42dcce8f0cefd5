#include "results/scatter.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>

namespace qkscope {
namespace {

std::vector<std::size_t> evenly_by_position(const Rows& rows, int count) {
  std::vector<std::size_t> order(static_cast<std::size_t>(rows.size()));
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
    return std::tuple(rows.position[i], rows.example(i)) <
           std::tuple(rows.position[j], rows.example(j));
  });
  const auto wanted = static_cast<std::size_t>(count);
  if (order.size() <= wanted) return order;
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < wanted; ++i)  // the middle of each of `wanted` equal stretches
    kept.push_back(order[(2 * i + 1) * order.size() / (2 * wanted)]);
  return kept;
}

// A row's coordinate along a direction, seen from `origin`; NaN when there is no direction.
class Axis {
 public:
  Axis(const std::vector<double>* direction, const CentredRows& rows,
       const std::vector<double>& origin) {
    if (!direction || direction->empty()) return;
    projection_.emplace(rows, *direction);
    shift_ = dot(rows.mean, *direction);
    if (!origin.empty()) shift_ -= dot(origin, *direction);
  }

  double operator()(std::size_t row) const {
    if (!projection_) return std::numeric_limits<double>::quiet_NaN();
    return (*projection_)(static_cast<std::int64_t>(row)) + shift_;
  }

 private:
  std::optional<CentredProjection> projection_;
  double shift_ = 0;
};

void add_side(HeadKind side, const CentredRows& rows, const std::vector<double>& pooled_mean,
              const std::vector<const std::vector<double>*>& directions, int count,
              std::vector<ScatterPoint>& points) {
  const Axis pc0(directions[0], rows, pooled_mean);
  const Axis pc1(directions[1], rows, pooled_mean);
  const Axis a(directions[2], rows, {});
  const Axis b(directions[3], rows, {});
  const Axis c0(directions[4], rows, pooled_mean);
  const Axis c1(directions[5], rows, pooled_mean);
  for (const auto i : evenly_by_position(rows.source, count))
    points.push_back({side, rows.source.position[i], pc0(i), pc1(i), a(i), b(i), c0(i), c1(i)});
}

}  // namespace

std::vector<ScatterPoint> scatter_points(const CentredRows& queries, const CentredRows& keys,
                                         const PooledMoments& pooled, const PcaResult* pca,
                                         const RotationResult* rotation, int per_side) {
  std::vector<const std::vector<double>*> directions(6, nullptr);
  if (pca)
    for (std::size_t i = 0; i < std::min<std::size_t>(2, pca->components.size()); ++i)
      directions[i] = &pca->components[i].direction;
  if (rotation) {
    directions[2] = &rotation->a;
    directions[3] = &rotation->b;
    directions[4] = &rotation->c0;
    directions[5] = &rotation->c1;
  }
  std::vector<ScatterPoint> points;
  add_side(HeadKind::query, queries, pooled.mean, directions, per_side, points);
  add_side(HeadKind::key, keys, pooled.mean, directions, per_side, points);
  return points;
}

}  // namespace qkscope
