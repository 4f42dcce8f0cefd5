#include "analysis/kernels/pair_heatmap.h"

#include <algorithm>
#include <cmath>

namespace qkscope {

int PairHeatmap::bin(double distance) const {
  const int whole = static_cast<int>(distance / width_);
  return std::max(0, std::min(whole, bins_ - 1));
}

void PairHeatmap::add(const PairAtPoints& pair) {
  const double middle = 0.5 * (pair.first + pair.second);
  Cell* const row = cells_.data() + bin(pair.second - pair.first) * bins_;
  // Neighbouring points mostly share a cell: it is left only when a point lies outside.
  Cell here;
  int cell = 0;
  double low = 0;
  double high = 0;
  const auto leave = [&] {
    row[cell].sum += here.sum;
    row[cell].weight += here.weight;
    row[cell].count += here.count;
    here = {};
  };
  for (std::size_t i = 0; i < pair.query.size(); ++i) {
    const double distance = pair.query[i] - middle;
    if (distance < low || distance >= high) {
      leave();
      cell = bin(distance);
      low = cell * width_;
      high = (cell + 1) * width_;
    }
    here.sum += pair.weight[i] * pair.value[i];
    here.weight += pair.weight[i];
    here.count += pair.weight[i] > 0 ? 1 : 0;
  }
  leave();
}

std::vector<HeatmapCell> PairHeatmap::cells() const {
  std::vector<HeatmapCell> cells;
  for (int i = 0; i < bins_; ++i)
    for (int j = 0; j < bins_; ++j) {
      const Cell& cell = cells_[static_cast<std::size_t>(i * bins_ + j)];
      if (cell.count == 0) continue;
      cells.push_back({i * width_, (i + 1) * width_, j * width_, (j + 1) * width_,
                       cell.sum / cell.weight, cell.count, std::llround(cell.weight)});
    }
  return cells;
}

}  // namespace qkscope
