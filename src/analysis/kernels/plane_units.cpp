#include "analysis/kernels/plane_units.h"

#include <algorithm>

#include "analysis/kernels/vector_loops.h"
#include "numerics/products.h"
#include "numerics/vectors.h"

namespace qkscope {
namespace {

constexpr std::int64_t kBlock = 32;  // rows that stay in the first cache for all planes

}  // namespace

void PlaneUnits::start(const Matrix& axes, std::int64_t rows) {
  dim_ = axes.cols;
  rows_ = rows;
  const std::int64_t planes = axes.rows / 2;
  axes_.assign(static_cast<std::size_t>((planes + 3) / 4 * dim_ * kPanelColumns), 0.0);
  for (std::int64_t plane = 0; plane < planes; ++plane)
    for (std::int64_t j = 0; j < dim_; ++j) {
      double* const to = axes_.data() + (plane / 4 * dim_ + j) * kPanelColumns + plane % 4;
      to[0] = axes(2 * plane, j);
      to[4] = axes(2 * plane + 1, j);
    }
  units_.resize(static_cast<std::size_t>(4 * groups() * rows));
}

void PlaneUnits::project(const CentredRows& rows, const PooledMoments& pooled,
                         std::span<const std::uint32_t> places) {
  std::vector<double> block(static_cast<std::size_t>(kBlock * dim_));
  for (std::int64_t begin = 0; begin < rows.size(); begin += kBlock) {
    const auto count = std::min(kBlock, rows.size() - begin);
    centre_side_by_side(rows.source.vectors.data() + begin * dim_, count, pooled.mean,
                        block.data());
    for (std::int64_t group = 0; group < groups(); ++group) {
      double xy[kBlock * kPanelColumns];
      multiply_panel(block.data(), count, dim_, axes_.data() + group * dim_ * kPanelColumns, xy);
      unit_vectors(xy,
                   places.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
                   units_.data() + 4 * group * rows_, rows_);
    }
  }
}

}  // namespace qkscope
