// The missing value of float64 results.
#pragma once

#include <limits>

namespace qkscope {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace qkscope
