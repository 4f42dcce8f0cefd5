// Several sequences run together one after another in the rows of the same tensors.
#pragma once

#include <cstdint>

namespace qkscope {

struct Segment {
  std::int64_t begin = 0;   // first row
  std::int64_t length = 0;  // rows; row begin + p holds position p
};

}  // namespace qkscope
