// The `model` of a tokenizer.json: byte-pair encoding of one word at a time.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "input/tokenizer/bpe_file.h"
#include "input/tokenizer/merging.h"
#include "input/tokenizer/vocabulary.h"
#include "input/tokenizer/word_cache.h"

namespace qkscope {

class BpeModel {
 public:
  // Memory of one encoding thread.
  struct Workspace {
    WordCache cache;
    std::vector<Symbol> symbols;
    MergeScratch merging;
  };

  BpeModel() = default;
  // `bytes`: words are raw bytes and the vocabulary is written in the byte alphabet.
  BpeModel(BpeFile file, bool bytes, const std::string& where);

  struct Word {
    std::string_view text;     // not empty
    const char* readable_end;  // of the memory the text lies in
    bool is_part = false;      // of a longer word
  };

  // Appends the ids of one word.
  void encode(Word word, Workspace& work, std::vector<std::int32_t>& ids) const;
  // The same with the size of each token in bytes of the vocabulary's spelling, not cached.
  void encode_symbols(std::string_view word, Workspace& work, std::vector<Symbol>& symbols) const;

  const Vocabulary& vocabulary() const { return file_.vocabulary; }

  // Whether no merge ever joins across the end of `left`, so that the ids of `left` and of what
  // follows, which begins with `next`, do not depend on each other.
  bool never_joins(std::string_view left, std::string_view next) const;

 private:
  // What a character or byte begins as.
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
  Vocabulary whole_;  // for ignore_merges: words as they come to the model
  MergeTable merges_;
  std::array<std::int32_t, 256> initial_{};   // id of a byte, or of an ASCII character; -1: none
  std::array<std::int32_t, 256> fallback_{};  // id of <0xNN>, -1: none
  std::bitset<65536> joins_;                  // (last byte, first byte) of some merge
  std::unordered_set<char32_t> joins_mark_;   // last characters of merges with U+2581 first
};

}  // namespace qkscope
