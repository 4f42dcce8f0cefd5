// Direct-mapped cache from words to their ids. One per encoding thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "input/tokenizer/hashing.h"

namespace qkscope {

class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 28;
  static constexpr std::size_t kMaxIds = 23;

  // The zero-padded word, its length, and a flag for parts of longer words.
  struct Key {
    std::array<std::uint64_t, 4> words{};

    // Memory up to `readable_end` may be read: far from the end, 32 bytes are loaded at once and
    // masked.
    Key(std::string_view word, const char* readable_end, bool part) {
      if (readable_end - word.data() >= 32) {
        std::memcpy(words.data(), word.data(), 32);
        for (std::size_t i = 0; i < 4; ++i) words[i] &= mask(word.size(), 8 * i);
      } else {
        std::memcpy(words.data(), word.data(), word.size());
      }
      words[3] |= std::uint64_t{word.size() | (part ? 0x80u : 0u)} << 56;
    }
    static std::uint64_t mask(std::size_t size, std::size_t before) {
      if (size <= before) return 0;
      return size >= before + 8 ? ~std::uint64_t{0} : ~(~std::uint64_t{0} << 8 * (size - before));
    }
    std::uint64_t hash() const {
      constexpr std::uint64_t kStep = 0xD1B54A32D192ED03u;
      return mix_bits(mix_bits(words[0] ^ kStep, words[1] ^ 0x9E3779B97F4A7C15u) ^ words[2],
                      words[3] ^ kStep);
    }
  };

  struct Entry {
    std::array<std::uint64_t, 4> words{};  // the key; the last byte is never 0 in a used entry
    std::int32_t count = 0;
    std::array<std::int32_t, kMaxIds> ids{};

    bool holds(const Key& key) const { return words == key.words; }
    // Stores the ids of a word; words with more than kMaxIds ids are not cached.
    void remember(const Key& key, std::span<const std::int32_t> of_word) {
      if (of_word.size() > kMaxIds) return;
      words = key.words;
      count = static_cast<std::int32_t>(of_word.size());
      std::copy(of_word.begin(), of_word.end(), ids.begin());
    }
  };
  static_assert(sizeof(Entry) == 128,
                "two cache lines, and up to seven ids only the first is read");

  // Returns the only slot for the key: it either holds the key or may be overwritten.
  Entry& at(const Key& key) { return entries_[key.hash() & (entries_.size() - 1)]; }

 private:
  static constexpr std::size_t kEntries = 1 << 15;
  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
};

}  // namespace qkscope
