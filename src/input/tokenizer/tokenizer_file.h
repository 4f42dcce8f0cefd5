// Parsed content of a tokenizer.json and its tokenizer_config.json, and the vocabulary and merges
// of byte-pair encoding (BPE).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/json.h"
#include "input/checkpoint/gguf.h"

namespace qkscope {

inline std::uint64_t mix_bits(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Returns the smallest power of two that keeps a hash table of `count` entries at most half full.
inline std::size_t hash_table_size(std::size_t count) {
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
  std::optional<std::string_view> token_string(std::int32_t id) const;
  std::size_t size() const { return entries_.size(); }
  std::int32_t id_range_end() const { return static_cast<std::int32_t>(by_id_.size()); }

 private:
  struct VocabularyEntry {
    std::uint32_t offset, size;  // position in text_
    std::int32_t id;
    std::uint32_t hash;
  };
  std::string_view entry_text(const VocabularyEntry& entry) const {
    return std::string_view(text_).substr(entry.offset, entry.size);
  }
  std::size_t find_slot(std::string_view token, std::uint32_t hash) const;
  void grow_hash_table();

  std::string text_;  // all tokens, concatenated
  std::vector<VocabularyEntry> entries_;
  std::vector<std::uint32_t> slots_;  // hash table of 1 + index into entries_; 0: free
  std::vector<std::int32_t> by_id_;   // index into entries_; -1: none
};

// Hash table of all merges: (left id, right id) -> rank and merged id.
class MergeTable {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  void reserve(std::size_t count) {
    slots_.assign(hash_table_size(count), MergeSlot{});
    into_.reserve(count);
  }
  // Merges must be added in order of rank. A duplicate pair keeps its last rank.
  void add(std::int32_t left, std::int32_t right, std::int32_t into) {
    MergeSlot& slot = slots_[find_slot(left, right)];
    slot = {left, right, static_cast<std::uint32_t>(into_.size())};
    into_.push_back(into);
  }

  // Returns the merge rank of a token pair (low ranks merge first), or kNone if it is never merged.
  std::uint32_t rank(std::int32_t left, std::int32_t right) const {
    return slots_[find_slot(left, right)].rank;
  }
  std::int32_t merged_id(std::uint32_t rank) const { return into_[rank]; }

 private:
  struct MergeSlot {
    std::int32_t left = -1, right = -1;
    std::uint32_t rank = kNone;
  };
  std::size_t find_slot(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key =
        std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = mix_bits(key, 0x9E3779B97F4A7C15u) & mask;
    while (slots_[at].rank != kNone && (slots_[at].left != left || slots_[at].right != right))
      at = (at + 1) & mask;
    return at;
  }

  std::vector<MergeSlot> slots_ = std::vector<MergeSlot>(1);  // always contains a free slot
  std::vector<std::int32_t> into_;                            // merged id by rank
};

struct BpeSymbol {
  std::int32_t id;
  std::uint32_t size;  // bytes in the vocabulary's spelling
};

struct MergeWorkspace {
  std::vector<std::uint32_t> ranks;
  std::vector<std::uint32_t> next, previous;
  std::vector<std::uint64_t> heap;
};

// The BPE merge loop: repeatedly merges the adjacent pair with the lowest rank (the leftmost if
// tied) until no pair can be merged. Works in place, in near-linear time.
void merge_symbols(const MergeTable& merges, std::vector<BpeSymbol>& symbols,
                   MergeWorkspace& scratch);

// The "model" object of a tokenizer.json.
struct BpeModelSpec {
  Vocabulary vocabulary;
  struct BpeMerge {
    std::int32_t left, right, into;
  };
  std::vector<BpeMerge> merges;
  std::optional<std::string> unknown;  // unk_token
  std::string continuing_prefix;       // continuing_subword_prefix
  bool fuse_unknown = false;           // fuse_unk
  bool byte_fallback = false;
  bool ignore_merges = false;
};

// An entry of `added_tokens`: a token that is matched in the text before BPE runs.
struct AddedToken {
  std::string content;
  bool single_word = false;  // match only if no word character is adjacent
  bool lstrip = false;       // the match includes white space to its left
  bool rstrip = false;       // the match includes white space to its right
  bool normalized = false;   // match in the normalized text
  bool special = false;
};

struct TokenizerFile {
  std::string path;
  BpeModelSpec model;
  std::vector<AddedToken> added_tokens;
  Json normalizer, pre_tokenizer, post_processor, decoder;  // null if absent
  bool truncates_left = false;

  std::optional<bool> add_bos, add_eos;
  std::string bos, eos;                   // empty if absent
  std::vector<AddedToken> config_tokens;  // added_tokens_decoder, sorted by id
};

// Reads a tokenizer.json, or the one inside a folder, and its tokenizer_config.json.
TokenizerFile read_tokenizer_file(const std::string& folder_or_file);

// Parses the text of a tokenizer.json. Error messages start with `path`.
TokenizerFile parse_tokenizer_json(std::string_view text, const std::string& path);

// ---- Tokenizers in the metadata of GGUF files, converted to the equivalent tokenizer.json

// Returns the GGUF file that contains the tokenizer: the path itself, or the only GGUF file in a
// folder without tokenizer.json. Returns "" if there is none.
std::string find_gguf_tokenizer(const std::string& folder_or_file);

// Parse the tokenizer of a GGUF file. An unsupported type or pre-tokenizer is a bad-input error.
TokenizerFile read_gguf_tokenizer(const std::string& path);
TokenizerFile parse_gguf_tokenizer(const GgufMetadata& metadata);

// Returns the ids of the end-of-text, end-of-turn and end-of-message tokens in the metadata of a
// GGUF file. llama.cpp stops generating at these tokens.
std::vector<std::int32_t> gguf_end_token_ids(const std::string& path);

}  // namespace qkscope
