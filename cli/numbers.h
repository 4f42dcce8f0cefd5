// Number formatting (human-readable counts and byte sizes), and parsing of plain numbers.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "qkscope/experimental/text.h"

namespace qkscope::cli {

inline std::string format_number(std::int64_t value) {
  return format_count(static_cast<std::uint64_t>(value));
}

// Parses text that consists of exactly one decimal number; returns nullopt otherwise. Whole numbers
// with leading zeros are refused: some programs read 010 as 8, others as 10.
template <typename Number>
std::optional<Number> parse_plain_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  const auto digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (std::is_integral_v<Number> && digits.size() > 1 && digits[0] == '0') return {};
  return value;
}

inline std::string format_size(std::int64_t value) {
  return format_bytes(static_cast<std::uint64_t>(value));
}

}  // namespace qkscope::cli
