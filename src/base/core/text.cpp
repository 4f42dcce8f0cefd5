#include "base/core/text.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "qkscope/version.h"

namespace qkscope {
namespace {

struct Utf8CharacterCheck {
  std::uint32_t size;  // bytes of the character or invalid sequence
  bool valid;
};

// Validates the first UTF-8 character. The size of an invalid sequence is that of its valid prefix.
Utf8CharacterCheck validate_first_utf8_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const std::uint32_t size = utf8::character_size(text[0]);
  // The second byte must not form an overlong encoding, a surrogate or a code point above U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (text.size() < 2 || byte(1) < low || byte(1) > high) return {1, false};
  for (std::uint32_t i = 2; i < size; ++i)
    if (text.size() <= i || !utf8::is_continuation_byte(text[i])) return {i, false};
  return {size, true};
}

std::size_t skip_ascii_blocks(std::string_view text, std::size_t at) {
  while (at + 8 <= text.size()) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if (word & 0x8080808080808080u) break;
    at += 8;
  }
  return at;
}

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

// Returns the size in bytes of a unit ("GiB", "g", "GB"), or 0 if the text is not a unit.
double bytes_per_unit(std::string_view text) {
  const auto unit = ascii_lower(text);
  if (unit.empty() || unit == "b") return 1.0;
  const auto power = std::string_view("kmgt").find(unit[0]);
  if (power == std::string_view::npos) return 0.0;
  const auto ending = unit.substr(1);
  if (!ending.empty() && ending != "ib" && ending != "b") return 0.0;
  return std::pow(ending == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
}

// Returns true for bidirectional formatting characters, which can reorder the text after them.
bool is_bidi_control(char32_t code) {
  return (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

// Moves the first character from `text` to the end of `result`, escaped if it is not printable.
// With `plain`, control characters stay unescaped.
void escape_next_character(std::string& result, std::string_view& text, bool plain) {
  const auto size = std::min<std::size_t>(utf8::character_size(text.front()), text.size());
  if (find_invalid_utf8(text.substr(0, size)) != std::string_view::npos) {
    result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    text.remove_prefix(1);
    return;
  }
  const char32_t code = utf8::decode_character(text.data()).code;
  if (!plain && (code < 0x20 || (code >= 0x7f && code < 0xa0)))
    result += fmt::format("\\x{:02x}", static_cast<unsigned>(code));
  else if (is_bidi_control(code))
    result += fmt::format("\\u{{{:04x}}}", static_cast<unsigned>(code));
  else
    result += text.substr(0, size);
  text.remove_prefix(size);
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while ((at = skip_ascii_blocks(text, at)) < text.size()) {
    const auto next = validate_first_utf8_character(text.substr(at));
    if (!next.valid) return at;
    at += next.size;
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto next = validate_first_utf8_character(text.substr(at));
    if (next.valid)
      out.append(text.substr(at, next.size));
    else
      utf8::append_code_point(out, 0xFFFD);
    at += next.size;
  }
  return out;
}

void utf8::append_code_point(std::string& text, char32_t code) {
  constexpr unsigned char kLeads[] = {0x00, 0xC0, 0xE0, 0xF0};  // for 0 to 3 continuation bytes
  const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  text.push_back(static_cast<char>(kLeads[more] | code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i)
    text.push_back(static_cast<char>(0x80 | (code >> (6 * i) & 0x3F)));
}

std::string utf8::encode_code_point(char32_t code) {
  std::string text;
  append_code_point(text, code);
  return text;
}

std::size_t utf8::count_characters(std::string_view text) {
  return text.size() - static_cast<std::size_t>(std::ranges::count_if(text, is_continuation_byte));
}

std::string closest_spelling(std::string_view word, std::span<const std::string> candidates) {
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
  return wildcard_match(
      pattern, text, [](char p) { return p == '*'; },
      [](char p, char t) { return p == '?' || p == t; });
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const bool plain = text.front() == '\n' || text.front() == '\t';
    escape_next_character(result, text, plain);
  }
  return result;
}

std::string quote_text(std::string_view text) {
  constexpr std::size_t kLongest = 200;
  const bool cut = text.size() > kLongest;
  std::string result = "\"";
  for (auto rest = text.substr(0, kLongest); !rest.empty();) {
    if (rest.front() == '"' || rest.front() == '\\') result += '\\';
    escape_next_character(result, rest, false);
  }
  return result + (cut ? "...\"" : "\"");
}

std::string quote_for_shell(const std::string& text) {
  constexpr auto plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-/=:,@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
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
  const auto value = parse_number<std::int64_t>(text);
  if (!value) reject("{}: found '{}', expected an integer", what, text);
  return *value;
}

std::int64_t parse_bytes(std::string_view text, std::string_view what) {
  double value = 0.0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  const auto bytes = value * bytes_per_unit(rest);
  constexpr double kMost = 0x1p62;
  if (error != std::errc() || !(bytes >= 1.0) || bytes > kMost)
    reject("{}: found '{}', expected a size like 8GiB, 512MiB or a number of bytes", what, text);
  return static_cast<std::int64_t>(bytes);
}

std::string trim_white_space(std::string_view text) {
  constexpr std::string_view kWhiteSpace = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kWhiteSpace), text.size()));
  return std::string(text.substr(0, text.find_last_not_of(kWhiteSpace) + 1));
}

std::string format_name_list(const std::vector<std::string>& names, std::size_t most) {
  if (names.empty()) return "nothing";
  const auto shown = std::span(names).first(std::min(most, names.size()));
  const auto text = fmt::format("{}", fmt::join(shown, ", "));
  return names.size() > most ? fmt::format("{} and {} more", text, names.size() - most) : text;
}

std::string encode_base64(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (i < count ? std::to_integer<std::uint32_t>(bytes[at + i]) : 0);
    for (std::size_t i = 0; i < 4; ++i)
      text += i <= count ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

Version library_version() {
  return kHeaderVersion;
}

const char* version_string() {
  static const auto text =
      fmt::format("{}.{}.{}", kHeaderVersion.major, kHeaderVersion.minor, kHeaderVersion.patch);
  return text.c_str();
}

}  // namespace qkscope
