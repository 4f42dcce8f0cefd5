// What stands where a number cannot be computed.
#pragma once

#include <limits>

namespace qkscope {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace qkscope
