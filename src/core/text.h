// Small helpers for the words in messages and on the command line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qkscope {

// The candidate with the smallest edit distance, empty when none is near enough to be meant.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// `*` stands for any run of characters (also none), `?` for one character.
bool glob_match(std::string_view pattern, std::string_view text);

// In double quotes for a message, control characters escaped, cut after 200 bytes: names that come
// out of a file may hold anything.
std::string in_quotes(std::string_view text);

std::vector<std::string> split(std::string_view text, char separator);
std::string format_bytes(std::uint64_t bytes);  // "1.5 GiB"
std::string format_count(std::uint64_t count);  // "3,075,098,624"

// A whole decimal integer; throws bad input naming `what` otherwise.
std::int64_t parse_integer(std::string_view text, std::string_view what);

// "8GiB", "8G" (the same), "8GB" (powers of 1000), "1.5 TiB", "4096"; upper or lower case.
std::int64_t parse_bytes(std::string_view text, std::string_view what);

}  // namespace qkscope
