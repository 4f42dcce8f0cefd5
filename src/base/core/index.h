// Conversion of signed indices for std::vector.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qkscope {

constexpr std::size_t as_index(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

}  // namespace qkscope
