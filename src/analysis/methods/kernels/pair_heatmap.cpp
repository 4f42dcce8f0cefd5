#include <cmath>

#include "analysis/methods/kernels/pair_tables.h"
#include "base/core/numbers.h"
#include "base/numerics/normal.h"

namespace qkscope {

PlasticityHeatmap::PlasticityHeatmap(double extent, int bins, std::span<const double> query)
    : bins_(bins),
      width_(extent / bins),
      query_(query),
      cell_steps_(32 * std::ssize(query) / bins + 1),
      steps_(static_cast<double>(cell_steps_) / width_),
      first_point_(as_index(2 * cell_steps_ * bins)),
      cells_(as_index(bins * bins)),
      weighted_(cells_.size()) {
  std::int32_t point = 0;
  for (std::size_t step = 0; step < first_point_.size(); ++step) {
    // The margin of 1e-3 table steps absorbs the rounding errors of add_key_pair().
    const double low = (static_cast<double>(step) - 1e-3) / steps_;
    while (point < std::ssize(query) && query[as_index(point)] < low) ++point;
    first_point_[step] = point;
  }
}

void PlasticityHeatmap::add_key_pair(const PlasticityPrefixSums& pair) {
  if (pair.begin >= pair.end) return;
  const double middle = 0.5 * (pair.first + pair.second);
  PlasticityCell* const row = cells_.data() + distance_bin(pair.second - pair.first) * bins_;
  const auto step = std::min(static_cast<std::int64_t>(middle * steps_), cell_steps_ * bins_ - 1);
  const std::int32_t* const first_point = first_point_.data() + step;
  const double* const query = query_.data();
  auto point = pair.begin;
  std::uint32_t before = *pair.running;
  for (int cell = distance_bin(query[point] - middle); point < pair.end; ++cell) {
    const double high = middle + (cell + 1) * width_;
    auto next = pair.end;  // the last cell also counts all points beyond the axis
    if (cell + 1 < bins_) {
      next = std::clamp<std::int64_t>(first_point[(cell + 1) * cell_steps_], point, pair.end);
      while (next < pair.end && query[next] < high) ++next;
    }
    const std::uint32_t after = pair.running[(next - pair.begin) * pair.stride];
    row[cell].sum += after - before;
    row[cell].count += static_cast<std::uint64_t>(next - point);
    before = after;
    point = next;
  }
}

void PlasticityHeatmap::set_pair_weight(double weight) {
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    const auto count = static_cast<double>(cells_[i].count);
    weighted_[i].sum += weight_ * kPlasticityUnit * static_cast<double>(cells_[i].sum);
    weighted_[i].weight += weight_ * count;
    weighted_[i].count += count;
    cells_[i] = PlasticityCell{};
  }
  weight_ = weight;
}

std::vector<HeatmapCell> PlasticityHeatmap::cells() {
  set_pair_weight(weight_);
  std::vector<HeatmapCell> cells;
  for (int i = 0; i < bins_; ++i)
    for (int j = 0; j < bins_; ++j) {
      const auto at = as_index(i) * as_index(bins_) + as_index(j);
      const WeightedCellSums& cell = weighted_[at];
      if (cell.count == 0) continue;
      cells.push_back({i * width_, (i + 1) * width_, j * width_, (j + 1) * width_,
                       cell.sum / cell.weight, static_cast<std::int64_t>(cell.count),
                       std::llround(cell.weight)});
    }
  return cells;
}

}  // namespace qkscope
