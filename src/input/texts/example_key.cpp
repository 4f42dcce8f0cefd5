#include "input/texts/example_key.h"

#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/core/blake2b.h"

namespace qkscope {

ExampleId ExampleId::from(std::int64_t value) {
  return {fmt::format("{}", value), value};
}

ExampleId ExampleId::from(std::uint64_t value) {
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return from_text(fmt::format("{}", value));
  }
  return from(static_cast<std::int64_t>(value));
}

ExampleId ExampleId::from(double value) {
  if (std::trunc(value) != value || std::isinf(value)) return from_text(fmt::format("{}", value));
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (value < -kLimit || value >= kLimit) return from_text(fmt::format("{:.0f}", value));
  return from(static_cast<std::int64_t>(value));
}

ExampleId ExampleId::from_digits(std::string text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty()) return from_text(std::move(text));
  return {std::move(text), value};
}

std::int64_t example_key(const ExampleId& id) {
  return id.integer ? *id.integer : static_cast<std::int64_t>(blake2b_64(id.text));
}

}  // namespace qkscope
