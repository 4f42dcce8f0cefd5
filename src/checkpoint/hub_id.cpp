#include "checkpoint/hub_id.h"

#include <algorithm>
#include <string_view>

#include "core/text.h"

namespace qkscope {
namespace {

constexpr std::size_t kLongestId = 96;
constexpr std::size_t kShortestCommit = 7;
constexpr std::size_t kCommitLength = 40;

bool is_word(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

}  // namespace

bool is_repository_id(const std::string& id) {
  const auto parts = split(id, '/');
  if (id.size() > kLongestId || parts.size() > 2) return false;
  if (id.find("..") != std::string::npos || id.find("--") != std::string::npos) return false;
  return std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
    return !part.empty() && is_word(part) && part.front() != '.' && part.front() != '-' &&
           part.back() != '.' && part.back() != '-';
  });
}

bool is_revision(const std::string& revision) {
  const auto parts = split(revision, '/');
  return revision.find('\0') == std::string::npos &&
         std::none_of(parts.begin(), parts.end(), [](const std::string& part) {
           return part.empty() || part == "." || part == "..";
         });
}

bool is_commit_prefix(const std::string& text) {
  return text.size() >= kShortestCommit &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool is_commit(const std::string& text) {
  return text.size() == kCommitLength && is_commit_prefix(text);
}

}  // namespace qkscope
