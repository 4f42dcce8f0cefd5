// Example ids, and the 64-bit keys that seed the sampling of an example.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qkscope {

// The id of an example as text, and as an integer if the value fits into 64 bits.
struct ExampleId {
  std::string text;
  std::optional<std::int64_t> integer;

  static ExampleId from(std::int64_t value);
  static ExampleId from(std::uint64_t value);
  static ExampleId from(double value);  // integral values count as integers
  static ExampleId from_text(std::string text) { return {std::move(text), std::nullopt}; }
  // Parses decimal digits, as in CSV files and for large JSON numbers; any other id is text.
  static ExampleId from_digits(std::string text);
};

// Returns the integer id itself, or the BLAKE2b hash of a text id.
std::int64_t example_key(const ExampleId& id);

}  // namespace qkscope
