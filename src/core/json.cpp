#include "core/json.h"

#include <algorithm>

#include "core/error.h"
#include "core/mapped_file.h"

namespace qkscope {
namespace {

constexpr int kMaxDepth = 200;

std::string place(std::string_view text, std::size_t byte) {
  const auto before = text.substr(0, std::min(byte, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto newline = before.rfind('\n');
  const auto column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1);
  return fmt::format("line {}, column {}", line, column);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  const auto limit_depth = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) bad_input("{}: JSON nested deeper than {} levels", where, kMaxDepth);
    return true;
  };
  try {
    return Json::parse(text, limit_depth);
  } catch (const Json::parse_error& error) {
    std::string reason =
        error.what();  // "[json.exception.parse_error.101] parse error at ...: why"
    if (const auto cut = reason.find(": "); cut != std::string::npos) reason.erase(0, cut + 2);
    bad_input("{}: not valid JSON at {}: {}", where, place(text, error.byte), reason);
  } catch (const Json::exception& error) {
    bad_input("{}: not valid JSON: {}", where, error.what());
  }
}

Json load_json(const std::string& path) {
  const MappedFile file(path);
  return parse_json(file.text(), path);
}

}  // namespace qkscope
