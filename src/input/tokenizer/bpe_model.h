// Byte-pair encoding (BPE) of single words: the `model` of a tokenizer.json.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "input/tokenizer/merging.h"
#include "input/tokenizer/tokenizer_file.h"
#include "input/tokenizer/vocabulary.h"

namespace qkscope {

// Direct-mapped cache from words to their ids. One per encoding thread.
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

  // Direct-mapped cache: returns the one entry in which the key can be stored. The entry holds this
  // key, or another key that the caller may overwrite.
  Entry& at(const Key& key) { return entries_[key.hash() & (entries_.size() - 1)]; }

 private:
  static constexpr std::size_t kEntries = 1 << 15;
  std::vector<Entry> entries_ = std::vector<Entry>(kEntries);
};

class BpeModel {
 public:
  // Reusable memory of one encoding thread.
  struct Workspace {
    WordCache cache;
    std::vector<Symbol> symbols;
    MergeScratch merging;
  };

  BpeModel() = default;
  // `bytes`: words are raw bytes and the vocabulary is spelled in the byte-level alphabet.
  BpeModel(BpeFile file, bool bytes, const std::string& where);

  struct Word {
    std::string_view text;     // not empty
    const char* readable_end;  // end of the readable memory that contains the text
    bool is_part = false;      // a part of a longer word
  };

  // Appends the ids of one word.
  void encode(Word word, Workspace& work, std::vector<std::int32_t>& ids) const;
  // Like encode(), but also returns the size of each token in bytes of the vocabulary's spelling.
  // Not cached.
  void encode_symbols(std::string_view word, Workspace& work, std::vector<Symbol>& symbols) const;

  const Vocabulary& vocabulary() const { return file_.vocabulary; }

  // Returns true if no merge can cross the boundary between `left` and a text that starts with
  // `next`, so that both sides can be encoded separately.
  bool never_joins(std::string_view left, std::string_view next) const;

 private:
  // Appends the initial symbol of one character or byte.
  void add_initial(std::string_view character, bool first, std::vector<Symbol>& symbols,
                   Symbol& pending) const;
  void begin(std::string_view word, std::vector<Symbol>& symbols) const;
  void merge(std::string_view word, Workspace& work, std::vector<std::int32_t>& ids) const;
  void merge_parts(Word word, Workspace& work, std::vector<std::int32_t>& ids) const;
  void encode_new(Word word, Workspace& work, std::vector<std::int32_t>& ids) const;
  bool is_boundary(const char* at) const;
  void note_joins();
  void note_initials();
  std::uint32_t spelled_size(std::string_view text) const;

  BpeFile file_;
  bool bytes_ = false;
  bool divisible_ = false;  // long words may be encoded in parts
  std::int32_t unknown_id_ = -1;
  Vocabulary whole_;  // for ignore_merges: whole words and their ids
  MergeTable merges_;
  std::array<std::int32_t, 256> initial_{};   // id of a byte or ASCII character, -1 if none
  std::array<std::int32_t, 256> fallback_{};  // id of the token <0xNN>, -1 if none
  std::bitset<65536> joins_;  // (last byte of left, first byte of right) over all merges
  std::unordered_set<char32_t> joins_mark_;  // left characters before U+2581
};

}  // namespace qkscope
