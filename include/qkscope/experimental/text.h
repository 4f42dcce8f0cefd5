// Formatting and parsing of text for command-line programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

// Returns the candidate with the smallest edit distance to `word`; "" if none is similar enough to
// be a typo of it.
QKSCOPE_API std::string closest_spelling(std::string_view word,
                                         std::span<const std::string> candidates);

// Quotes a word for a POSIX shell where needed.
QKSCOPE_API std::string quote_for_shell(const std::string& text);

QKSCOPE_API std::vector<std::string> split(std::string_view text, char separator);

QKSCOPE_API std::string format_bytes(std::uint64_t bytes);  // "1.5 GiB"
QKSCOPE_API std::string format_count(std::uint64_t count);  // "3,075,098,624"
QKSCOPE_API std::string format_duration(double seconds);    // "42 s", "3 min 10 s", "2 h 05 min"

// Parses a decimal integer. Throws a bad-input error that begins with `what` for any other text.
QKSCOPE_API std::int64_t parse_integer(std::string_view text, std::string_view what);

// Parses a size in bytes: "4096", "8GiB" or "8G" (powers of 1024), "8GB" (powers of 1000), "1.5
// TiB"; case-insensitive. Throws a bad-input error that begins with `what` for any other text.
QKSCOPE_API std::int64_t parse_bytes(std::string_view text, std::string_view what);

// Escapes text for a terminal: control characters, invalid UTF-8 and bidirectional formatting
// characters become \xNN or \u{NNNN}; newlines and tabs stay. Use it for names from files, which
// could otherwise send escape sequences to the terminal.
QKSCOPE_API std::string printable(std::string_view text);

// Returns the content of a file. Throws an Error if the file cannot be opened or read.
QKSCOPE_API std::string read_text_file(const std::string& path);

// Installs a SIGBUS handler for programs: if another process truncates a file while it is mapped
// here, this process prints the file's name and exits with code 1.
QKSCOPE_API void report_truncated_mappings();

// Returns the offset of the first byte that is not valid UTF-8; npos if all of the text is valid.
QKSCOPE_API std::size_t find_invalid_utf8(std::string_view text);
// Replaces each invalid UTF-8 sequence with U+FFFD.
QKSCOPE_API std::string replace_invalid_utf8(std::string_view text);

// Throws a bad-input error if the text is not valid JSON. The message begins with `where` and gives
// line, column and reason.
QKSCOPE_API void check_json(std::string_view text, const std::string& where);

}  // namespace qkscope
