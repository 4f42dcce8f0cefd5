// Bidirectional map between tokens and ids, and the hash functions of the tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qkscope {

inline std::uint64_t mix_bits(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t load_bytes(const char* from, std::size_t count) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, count);
  return word;
}

inline std::uint64_t hash_string(std::string_view text) {
  constexpr std::uint64_t kSeed = 0x9E3779B97F4A7C15u, kStep = 0xD1B54A32D192ED03u;
  std::uint64_t hash = kSeed ^ text.size();
  const char* at = text.data();
  std::size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) hash = mix_bits(hash ^ load_bytes(at, 8), kStep);
  return mix_bits(hash ^ load_bytes(at, left), kSeed);
}

// Returns the smallest power of two that keeps a hash table of `count` entries at most half full.
inline std::size_t table_size(std::size_t count) {
  std::size_t size = 16;
  while (size < 2 * count) size *= 2;
  return size;
}

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
