// Names, sizes and counts as people write them: what programs print and read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

// The candidate with the smallest edit distance, empty when none is near enough to be meant.
QKSCOPE_API std::string nearest(std::string_view word, std::span<const std::string> candidates);

QKSCOPE_API std::vector<std::string> split(std::string_view text, char separator);

QKSCOPE_API std::string format_bytes(std::uint64_t bytes);    // "1.5 GiB"
QKSCOPE_API std::string format_count(std::uint64_t count);    // "3,075,098,624"
QKSCOPE_API std::string format_duration(double seconds);      // "42 s", "3 min 10 s", "2 h 05 min"

// A whole decimal integer; anything else is bad input that names `what`.
QKSCOPE_API std::int64_t parse_integer(std::string_view text, std::string_view what);

// "8GiB", "8G" (the same), "8GB" (powers of 1000), "1.5 TiB", "4096"; upper or lower case.
QKSCOPE_API std::int64_t parse_bytes(std::string_view text, std::string_view what);

}  // namespace qkscope
