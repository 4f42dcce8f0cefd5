// Names, sizes and counts as people write them: what programs print and read.
#pragma once

#include <cstddef>
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

QKSCOPE_API std::string format_bytes(std::uint64_t bytes);  // "1.5 GiB"
QKSCOPE_API std::string format_count(std::uint64_t count);  // "3,075,098,624"
QKSCOPE_API std::string format_duration(double seconds);    // "42 s", "3 min 10 s", "2 h 05 min"

// A whole decimal integer; anything else is bad input that names `what`.
QKSCOPE_API std::int64_t parse_integer(std::string_view text, std::string_view what);

// "8GiB", "8G" (the same), "8GB" (powers of 1000), "1.5 TiB", "4096"; upper or lower case.
QKSCOPE_API std::int64_t parse_bytes(std::string_view text, std::string_view what);

// The whole file; what cannot be opened or read is an error that says why.
QKSCOPE_API std::string read_text_file(const std::string& path);

// Where the text stops being UTF-8, in bytes; npos where it never does.
QKSCOPE_API std::size_t find_invalid_utf8(std::string_view text);
// U+FFFD in the place of what is not UTF-8.
QKSCOPE_API std::string replace_invalid_utf8(std::string_view text);

// Throws where the text is not JSON that the library would read: the message begins with `where`
// and says line, column and reason.
QKSCOPE_API void check_json(std::string_view text, const std::string& where);

}  // namespace qkscope
