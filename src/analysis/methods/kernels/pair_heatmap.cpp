#include "analysis/methods/kernels/pair_heatmap.h"

#include <algorithm>
#include <cmath>

namespace qkscope {

void PairHeatmap::add(const PairAtPoints& pair) {
  const double middle = 0.5 * (pair.first + pair.second);
  Cell* const row = cells_.data() + bin(pair.second - pair.first) * bins_;
  const auto& query = pair.query;
  const auto count = query.size();
  const double per_token =
      count > 1 ? static_cast<double>(count - 1) / (query[count - 1] - query[0]) : 0;
  for (std::size_t i = 0; i < count;) {
    const int cell = bin(query[i] - middle);
    const double high = middle + (cell + 1) * width_;
    auto end = count;
    if (cell + 1 < bins_) {
      // Points are almost equally spaced: guess the cell's last point, then step to it.
      end = std::min(count, i + 1 + static_cast<std::size_t>((high - query[i]) * per_token));
      while (end < count && query[end] < high) ++end;
      while (end > i + 1 && query[end - 1] >= high) --end;
    }
    double even = 0;
    double odd = 0;
    const double* const value = pair.value.data();
    auto k = i;
    for (; k + 1 < end; k += 2) {
      even += value[k];
      odd += value[k + 1];
    }
    if (k < end) even += value[k];
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
