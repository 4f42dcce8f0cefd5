#include "base/io/json.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/mapped_file.h"
#include "base/io/output_file.h"

namespace qkscope {
namespace {

constexpr int kMaxDepth = 200;
constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
constexpr std::int64_t kMaxValues = 4'000'000;  // values and keys; each takes about 50 bytes

std::string format_line_and_column(std::string_view text, std::size_t byte) {
  const auto before = text.substr(0, std::min(byte, text.size()));
  const auto line = 1 + std::ranges::count(before, '\n');
  const auto newline = before.rfind('\n');
  const auto column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1);
  return fmt::format("line {}, column {}", line, column);
}

// Rejects duplicate keys in a JSON object. `keys` holds the keys seen in each open object.
void reject_duplicate_keys(Json::parse_event_t event, const Json& parsed, const std::string& where,
                           std::vector<std::set<std::string>>& keys) {
  if (event == Json::parse_event_t::object_start) keys.emplace_back();
  if (event == Json::parse_event_t::object_end) keys.pop_back();
  if (event != Json::parse_event_t::key) return;
  const auto& key = parsed.get_ref<const std::string&>();
  if (!keys.back().insert(key).second)
    reject("{}: the key {} appears twice in one object", where, quote_text(key));
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where, DuplicateKeyPolicy repeated) {
  if (text.size() > kMaxBytes)
    reject("{}: JSON of {}, expected at most {}", where, format_bytes(text.size()),
           format_bytes(kMaxBytes));
  // The parser treats a zero byte as the end of the text and would ignore the rest.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos)
    reject("{}: not valid JSON at {}: a zero byte", where, format_line_and_column(text, zero + 1));
  std::int64_t events = 0;
  std::vector<std::set<std::string>> keys;
  const auto check_limits = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMaxDepth) reject("{}: JSON nested deeper than {} levels", where, kMaxDepth);
    if (++events > kMaxValues) reject("{}: JSON of more than {} values", where, kMaxValues);
    if (repeated == DuplicateKeyPolicy::refuse) reject_duplicate_keys(event, parsed, where, keys);
    return true;
  };
  try {
    return Json::parse(text, check_limits);
  } catch (const Json::parse_error& error) {
    std::string reason = error.what();  // "[json.exception.parse_error.101] parse error ...: why"
    reason.erase(0, reason.find(": ") + 2);
    reject("{}: not valid JSON at {}: {}", where, format_line_and_column(text, error.byte), reason);
  } catch (const Json::exception& error) {
    reject("{}: not valid JSON: {}", where, error.what());
  }
}

Json load_json(const std::string& path) {
  const MappedFile file(path);
  return parse_json(file.text(), path);
}

void check_json(std::string_view text, const std::string& where) {
  translate_exceptions([&] { parse_json(text, where); });
}

void write_json_file(const std::string& path, const Json& json, int indent) {
  write_file(path, json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace qkscope
