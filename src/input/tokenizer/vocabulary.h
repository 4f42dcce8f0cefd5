// Bidirectional map between tokens and ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qkscope {

class Vocabulary {
 public:
  // Largest valid id. Larger ids indicate a corrupt file.
  static constexpr std::int64_t kMaxId = (1 << 24) - 1;

  // A duplicate token keeps its last id.
  void add(std::string_view token, std::int32_t id);

  std::int32_t find(std::string_view token) const;  // -1 if absent
  // Returns the token with this id, or nullopt.
  std::optional<std::string_view> token(std::int32_t id) const;
  std::size_t size() const { return entries_.size(); }
  std::int32_t end_id() const { return static_cast<std::int32_t>(by_id_.size()); }

 private:
  struct Entry {
    std::uint32_t offset, size;  // position in text_
    std::int32_t id;
    std::uint32_t hash;
  };
  std::string_view text(const Entry& entry) const {
    return std::string_view(text_).substr(entry.offset, entry.size);
  }
  std::size_t slot(std::string_view token, std::uint32_t hash) const;
  void grow();

  std::string text_;  // all tokens, concatenated
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // hash table of 1 + index into entries_; 0: free
  std::vector<std::int32_t> by_id_;   // index into entries_; -1: none
};

}  // namespace qkscope
