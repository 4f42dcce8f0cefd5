// Internal text functions, and UTF-8 encoding and decoding. The functions that validate UTF-8 are
// declared in qkscope/experimental/text.h.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/experimental/text.h"

namespace qkscope {

// Wildcard matching of sequences: a pattern element p with is_star(p) matches any run of text
// elements; any other p matches one element t for which matches(p, t) is true. Backtracks to the
// last star only, so the time is bounded by the product of both lengths.
template <typename Pattern, typename Text, typename IsStar, typename Matches>
bool wildcard_match(const Pattern& pattern, const Text& text, const IsStar& is_star,
                    const Matches& matches) {
  constexpr auto kNone = std::string_view::npos;
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = kNone;
  std::size_t star_end = 0;  // end of the run that the last star stands for
  while (t < text.size()) {
    if (p < pattern.size() && is_star(pattern[p])) {
      star = p++;
      star_end = t;
    } else if (p < pattern.size() && matches(pattern[p], text[t])) {
      ++p;
      ++t;
    } else if (star != kNone) {  // extend the run of the last star by one element
      p = star + 1;
      t = ++star_end;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && is_star(pattern[p])) ++p;
  return p == pattern.size();
}

// Returns whether a glob pattern matches the whole text: `*` any characters, `?` exactly one.
bool glob_match(std::string_view pattern, std::string_view text);

// Parses text that consists of exactly one number. Returns nullopt for any other text.
template <typename Number, typename... Format>
std::optional<Number> parse_number(std::string_view text, Format... base) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base...);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

// Converts A to Z to lower case, independently of the locale. All other bytes are unchanged.
std::string ascii_lower(std::string_view text);

// Quotes text from a file for an error message: escaped like printable(), at most 200 bytes.
std::string quote_text(std::string_view text);

// Overloads of format_count() and format_bytes() in qkscope/experimental/text.h for signed
// integers, which must not be negative.
std::string format_count(std::signed_integral auto count) {
  return format_count(static_cast<std::uint64_t>(count));
}
std::string format_bytes(std::signed_integral auto bytes) {
  return format_bytes(static_cast<std::uint64_t>(bytes));
}

// Removes white space at both ends.
std::string trim_white_space(std::string_view text);

// Lists the first `most` names for an error message: "a, b and 3 more", or "nothing" for no names.
std::string format_name_list(const std::vector<std::string>& names, std::size_t most = 8);

// Returns the bytes in Base64 with padding (RFC 4648).
std::string encode_base64(std::span<const std::byte> bytes);

}  // namespace qkscope

namespace qkscope::utf8 {

struct DecodedCharacter {
  char32_t code;
  std::uint32_t size;  // bytes
};

inline bool is_continuation_byte(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// Returns the size in bytes of a UTF-8 character that starts with the byte `lead`.
inline std::uint32_t character_size(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Decodes the character at `at`, which must point to the first byte of a character in valid UTF-8.
inline DecodedCharacter decode_character(const char* at) {
  const auto byte = [at](int i) {
    return static_cast<char32_t>(static_cast<unsigned char>(at[i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

// Decodes the character that ends before `end`; the text before `end` must be valid and not empty.
inline DecodedCharacter decode_last_character(const char* end) {
  std::uint32_t size = 1;
  while (is_continuation_byte(end[-static_cast<std::ptrdiff_t>(size)])) ++size;
  return decode_character(end - size);
}

void append_code_point(std::string& text, char32_t code);
std::string encode_code_point(char32_t code);
std::size_t count_characters(std::string_view text);

}  // namespace qkscope::utf8
