#include "analysis/methods/kernels/pair_heatmap.h"

#include <algorithm>
#include <cmath>

namespace qkscope {

void PairHeatmap::add(const PairAtPoints& pair) {
  const double middle = 0.5 * (pair.first + pair.second);
  Cell* const row = cells_.data() + bin(pair.second - pair.first) * bins_;
  const double* const query = pair.query.data();
  const float* const value = pair.value.data();
  const auto count = pair.query.size();
  if (count == 0) return;
  int cell = bin(query[0] - middle);
  for (std::size_t i = 0; i < count; ++cell) {
    // The last cell takes all points beyond the axis.
    const double high = middle + (cell + 1) * width_;
    float sum = 0;
    const auto first = i;
    if (cell + 1 == bins_)
      for (; i < count; ++i) sum += value[i];
    else
      for (; i < count && query[i] < high; ++i) sum += value[i];
    if (i > first) row[cell] += Cell{sum, static_cast<double>(i - first)};
  }
}

void PairHeatmap::set_weight(double weight) {
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    weighted_[i].sum += weight_ * cells_[i][0];
    weighted_[i].weight += weight_ * cells_[i][1];
    weighted_[i].count += cells_[i][1];
    cells_[i] = Cell{};
  }
  weight_ = weight;
}

std::vector<HeatmapCell> PairHeatmap::cells() {
  set_weight(weight_);
  std::vector<HeatmapCell> cells;
  for (int i = 0; i < bins_; ++i)
    for (int j = 0; j < bins_; ++j) {
      const auto at = static_cast<std::size_t>(i) * static_cast<std::size_t>(bins_) +
                      static_cast<std::size_t>(j);
      const WeightedCell& cell = weighted_[at];
      if (cell.count == 0) continue;
      cells.push_back({i * width_, (i + 1) * width_, j * width_, (j + 1) * width_,
                       cell.sum / cell.weight, static_cast<std::int64_t>(cell.count),
                       std::llround(cell.weight)});
    }
  return cells;
}

}  // namespace qkscope
