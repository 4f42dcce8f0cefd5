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

// For a terminal: control characters, bytes that are not UTF-8 and characters that turn the writing
// direction become \xNN or \u{NNNN}; line ends and tabs stay. Names of files and out of files may
// hold anything, and could move the cursor or hide what was printed.
QKSCOPE_API std::string printable(std::string_view text);

// The whole file; what cannot be opened or read is an error that says why.
QKSCOPE_API std::string read_text_file(const std::string& path);

// For programs: from now on a file that is cut by another process while it is read here ends the
// process with a message that names it and exit code 1, instead of the signal SIGBUS alone.
QKSCOPE_API void report_cut_files();

// Where the text stops being UTF-8, in bytes; npos where it never does.
QKSCOPE_API std::size_t find_invalid_utf8(std::string_view text);
// U+FFFD in the place of what is not UTF-8.
QKSCOPE_API std::string replace_invalid_utf8(std::string_view text);

// Throws where the text is not JSON that the library would read: the message begins with `where`
// and says line, column and reason.
QKSCOPE_API void check_json(std::string_view text, const std::string& where);

}  // namespace qkscope
