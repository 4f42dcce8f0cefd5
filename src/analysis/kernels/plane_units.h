// The directions in which rows point in planes: a unit vector per row and plane.
#pragma once

#include <span>
#include <vector>

#include "analysis/moments.h"
#include "numerics/products.h"
#include "numerics/spectrum.h"

namespace qkscope {

// Unit vectors of all rows in up to four planes per group, rows in a given order.
class PlaneUnits {
 public:
  // Begins with new planes and rows, in the memory of those before. Axes 2i and 2i+1 (rows of
  // `axes`) span plane i.
  void start(const Matrix& axes, std::int64_t rows);

  std::int64_t groups() const { return std::ssize(axes_) / (kPanelColumns * dim_); }
  // Projects the rows, centred on the pooled mean, and puts row i at places[i]. A row at the centre
  // points along the first axis.
  void project(const CentredRows& rows, const PooledMoments& pooled,
               std::span<const std::uint32_t> places);
  // Planes 4 group .. 4 group + 3.
  std::span<const FourValues> group(std::int64_t group) const {
    return std::span(units_).subspan(static_cast<std::size_t>(group * rows_),
                                     static_cast<std::size_t>(rows_));
  }

 private:
  std::vector<double> shift_of(const CentredRows& rows, const PooledMoments& pooled) const;
  const double* axes_of(std::int64_t group) const {
    return axes_.data() + group * dim_ * kPanelColumns;
  }

  std::int64_t dim_ = 0;
  std::int64_t rows_ = 0;
  std::vector<double> axes_;  // (groups, dim, 8): the first axes of four planes, then the second
  std::vector<FourValues> units_;  // (groups, rows)
};

}  // namespace qkscope
