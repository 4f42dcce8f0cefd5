#include "analysis/methods/kernels/pair_heatmap.h"

#include <algorithm>
#include <cmath>

namespace qkscope {

void PairHeatmap::add(const PairAtPoints& pair) {
  const double middle = 0.5 * (pair.first + pair.second);
  Cell* const row = cells_.data() + bin(pair.second - pair.first) * bins_;
  const auto count = pair.query.size();
  // Neighbouring points mostly share a cell.
  for (std::size_t i = 0; i < count;) {
    const int cell = bin(pair.query[i] - middle);
    const double low = middle + cell * width_;
    const double high = middle + (cell + 1) * width_;
    double even = pair.value[i];
    double odd = 0;
    auto end = i + 1;
    for (; end < count && pair.query[end] >= low && pair.query[end] < high; ++end) {
      const double sum = odd + pair.value[end];
      odd = even;
      even = sum;
    }
    row[cell] += Cell{even + odd, static_cast<double>(end - i)};
    i = end;
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
