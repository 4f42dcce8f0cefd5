#include "base/io/json.h"

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/mapped_file.h"

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

// Parser callback that rejects deep nesting, too many values and, on request, duplicate keys.
class ParseLimits {
 public:
  ParseLimits(const std::string& where, RepeatedKeyPolicy repeated)
      : where_(where), repeated_(repeated) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > kMaxDepth) bad_input("{}: JSON nested deeper than {} levels", where_, kMaxDepth);
    if (++events_ > kMaxValues) bad_input("{}: JSON of more than {} values", where_, kMaxValues);
    if (repeated_ == RepeatedKeyPolicy::refuse) check_repeated_keys(event, parsed);
    return true;
  }

 private:
  void check_repeated_keys(Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      keys_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second)
        bad_input("{}: the key {} appears twice in one object", where_, quote_text(key));
    }
  }

  const std::string& where_;
  RepeatedKeyPolicy repeated_;
  std::int64_t events_ = 0;
  std::vector<std::set<std::string>> keys_;  // one set per open object
};

}  // namespace

Json parse_json(std::string_view text, const std::string& where, RepeatedKeyPolicy repeated) {
  if (text.size() > kMaxBytes)
    bad_input("{}: JSON of {}, expected at most {}", where, format_bytes(text.size()),
              format_bytes(kMaxBytes));
  // The parser treats a zero byte as the end of the text and would ignore the rest.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos)
    bad_input("{}: not valid JSON at {}: a zero byte", where,
              format_line_and_column(text, zero + 1));
  ParseLimits limits(where, repeated);
  try {
    return Json::parse(text, std::ref(limits));
  } catch (const Json::parse_error& error) {
    std::string reason = error.what();  // "[json.exception.parse_error.101] parse error ...: why"
    reason.erase(0, reason.find(": ") + 2);
    bad_input("{}: not valid JSON at {}: {}", where, format_line_and_column(text, error.byte),
              reason);
  } catch (const Json::exception& error) {
    bad_input("{}: not valid JSON: {}", where, error.what());
  }
}

Json load_json(const std::string& path) {
  const MappedFile file(path);
  return parse_json(file.text(), path);
}

void check_json(std::string_view text, const std::string& where) {
  translate_exceptions([&] { parse_json(text, where); });
}

}  // namespace qkscope
