// Byte-pair encoding (BPE) of single words: the `model` of a tokenizer.json.
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
  std::unordered_set<char32_t>
      joins_mark_;  // last characters of merges whose right side starts with U+2581
};

}  // namespace qkscope
