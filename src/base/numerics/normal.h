// The normal distribution: scalar with full relative accuracy, and over arrays at vector speed.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>

namespace qkscope {

// Phi(z) with relative accuracy also far in the lower tail.
inline double normal_cdf(double z) {
  return 0.5 * std::erfc(-z * (1 / std::numbers::sqrt2));
}

// z[i] becomes 4 p (1 - p) with p = Phi(z[i]): 1 for a coin flip, 0 for a certain choice.
void plasticity_of(std::span<double> z);

// Lines of z over a shift, and the places [first, end) at which their plasticity is wanted. Places
// of one line that stand together have ascending shifts.
struct ZLines {
  const double* start;           // (lines): z without a shift
  const double* slope;           // (lines)
  std::int32_t first_line;       // number of the first of them
  const std::int32_t* line;      // (places): the line of each
  const std::int32_t* line_end;  // (places): the first place behind it that is of another line
  const double* shift;           // (places)
  std::int64_t first;
  std::int64_t end;
};
// out (end - first): 4 p (1 - p) with p = Phi(start + slope shift), from a table of Taylor series;
// relative error below 2e-14.
void plasticity_along(const ZLines& lines, double* out);
// z[i] becomes its plasticity, from the same table.
void plasticity_from_table(std::span<double> z);

// z[i] becomes erfc(z[i]); z[i] >= 0. Values past 26.5 count as 26.5 (about 1e-307).
void erfc_in_place(std::span<double> z);

}  // namespace qkscope
