// What identifies an example, and the 64-bit key that seeds its sampling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qkscope {

// An id as the dataset gives it: as text, and as a number where it is one that fits.
struct ExampleId {
  std::string text;
  std::optional<std::int64_t> integer;

  static ExampleId from(std::int64_t value);
  static ExampleId from(std::uint64_t value);
  static ExampleId from(double value);  // a whole number counts as an integer
  static ExampleId from_text(std::string text) { return {std::move(text), std::nullopt}; }
  // A number written in decimal digits, as CSV and very large JSON numbers give it; else text.
  static ExampleId from_digits(std::string text);
};

// The integer itself, or the blake2b hash of the text.
std::int64_t example_key(const ExampleId& id);

}  // namespace qkscope
