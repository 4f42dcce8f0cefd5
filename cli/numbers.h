// Formats signed counts and byte sizes in human-readable form.
#pragma once

#include <cstdint>
#include <string>

#include "qkscope/experimental/text.h"

namespace qkscope::cli {

inline std::string number(std::int64_t value) {
  return format_count(static_cast<std::uint64_t>(value));
}

inline std::string bytes(std::int64_t value) {
  return format_bytes(static_cast<std::uint64_t>(value));
}

}  // namespace qkscope::cli
