#include "base/core/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/core/error.h"
#include "base/core/utf8.h"

namespace qkscope {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

// Returns the bytes of one unit ("GiB", "g", "GB"); 0 if the text is not a unit.
double bytes_of_unit(std::string_view text) {
  const auto unit = ascii_lower(text);
  if (unit.empty() || unit == "b") return 1.0;
  const auto power = std::string_view("kmgt").find(unit[0]);
  if (power == std::string_view::npos) return 0.0;
  const auto ending = unit.substr(1);
  if (!ending.empty() && ending != "ib" && ending != "b") return 0.0;
  return std::pow(ending == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
}

// Bidirectional formatting characters, which can reorder the text after them.
bool is_bidi_control(char32_t code) {
  return (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

// Moves the first character of `text` to `result`, escaped unless it is printable or `plain` is
// set.
void append_escaped(std::string& result, std::string_view& text, bool plain) {
  const auto size = std::min<std::size_t>(utf8::length(text.front()), text.size());
  if (utf8::find_invalid(text.substr(0, size)) != std::string_view::npos) {
    result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    text.remove_prefix(1);
    return;
  }
  const char32_t code = utf8::decode(text.data()).code;
  if (!plain && (code < 0x20 || (code >= 0x7f && code < 0xa0)))
    result += fmt::format("\\x{:02x}", static_cast<unsigned>(code));
  else if (is_bidi_control(code))
    result += fmt::format("\\u{{{:04x}}}", static_cast<unsigned>(code));
  else
    result += text.substr(0, size);
  text.remove_prefix(size);
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 2) + 1;
  for (const auto& candidate : candidates) {
    const auto distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string ascii_lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star !=
               std::string_view::npos) {  // backtrack: the last `*` matches one more character
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const bool plain = text.front() == '\n' || text.front() == '\t';
    append_escaped(result, text, plain);
  }
  return result;
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 200;
  const bool cut = text.size() > kLongest;
  std::string result = "\"";
  for (auto rest = text.substr(0, kLongest); !rest.empty();) {
    if (rest.front() == '"' || rest.front() == '\\') result += '\\';
    append_escaped(result, rest, false);
  }
  return result + (cut ? "...\"" : "\"");
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const auto end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string format_count(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<std::size_t>(i), ",");
  return digits;
}

std::int64_t parse_integer(std::string_view text, std::string_view what) {
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size())
    bad_input("{}: found '{}', expected an integer", what, text);
  return value;
}

std::int64_t parse_bytes(std::string_view text, std::string_view what) {
  double value = 0.0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  const auto bytes = value * bytes_of_unit(rest);
  constexpr double kMost = 0x1p62;
  if (error != std::errc() || !(bytes >= 1.0) || bytes > kMost)
    bad_input("{}: found '{}', expected a size like 8GiB, 512MiB or a number of bytes", what, text);
  return static_cast<std::int64_t>(bytes);
}

}  // namespace qkscope
