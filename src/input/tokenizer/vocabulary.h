// Tokens and their ids, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qkscope {

class Vocabulary {
 public:
  // Ids run from 0 to kMaxId: beyond that a file is broken rather than large.
  static constexpr std::int64_t kMaxId = (1 << 24) - 1;

  // A token given twice keeps its last id.
  void add(std::string_view token, std::int32_t id);

  std::int32_t find(std::string_view token) const;  // -1: not there
  // The token of an id, nullopt where no token has it.
  std::optional<std::string_view> token(std::int32_t id) const;
  std::size_t size() const { return entries_.size(); }
  std::int32_t end_id() const { return static_cast<std::int32_t>(by_id_.size()); }

 private:
  struct Entry {
    std::uint32_t offset, size;  // in text_
    std::int32_t id;
    std::uint32_t hash;
  };
  std::string_view text(const Entry& entry) const {
    return std::string_view(text_).substr(entry.offset, entry.size);
  }
  std::size_t slot(std::string_view token, std::uint32_t hash) const;
  void grow();

  std::string text_;  // all tokens one after another
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // hash table of 1 + index into entries_, 0: free
  std::vector<std::int32_t> by_id_;   // index into entries_, -1: none
};

}  // namespace qkscope
