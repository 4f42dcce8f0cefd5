// What is looked at of an activation.
#pragma once

#include <cstdint>
#include <span>

namespace qkscope {

// All of it, or rows, or rows and heads; ascending.
struct Choice {
  std::span<const std::int64_t> rows;   // of the batch; empty: all
  std::span<const std::int64_t> heads;  // of q, k, v or z; empty: all
};

}  // namespace qkscope
