// Encodes text to token ids with the normalizer, the pre-tokenizer and the BPE model. Adds no
// special tokens and does not truncate. Also finds split positions: cutting a text at one of them
// changes no token, so that the parts can be encoded independently.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "input/tokenizer/tokenizer_components.h"
#include "input/tokenizer/tokenizer_file.h"

namespace qkscope {

// Direct-mapped cache from words to token ids, one per encoding thread.
class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 28;
  static constexpr std::size_t kMaxIds = 23;

  // Cache key: the zero-padded word, its length, and a flag for parts of longer words.
  struct WordKey {
    std::array<std::uint64_t, 4> words{};

    // All memory up to `readable_end` must be readable: 32 bytes are loaded at once, then masked.
    WordKey(std::string_view word, const char* readable_end, bool part) {
      if (readable_end - word.data() >= 32) {
        std::memcpy(words.data(), word.data(), 32);
        for (std::size_t i = 0; i < 4; ++i) words[i] &= byte_mask(word.size(), 8 * i);
      } else {
        std::memcpy(words.data(), word.data(), word.size());
      }
      words[3] |= std::uint64_t{word.size() | (part ? 0x80u : 0u)} << 56;
    }
    static std::uint64_t byte_mask(std::size_t size, std::size_t before) {
      if (size <= before) return 0;
      return size >= before + 8 ? ~std::uint64_t{0} : ~(~std::uint64_t{0} << 8 * (size - before));
    }
    std::uint64_t hash() const {
      constexpr std::uint64_t kStep = 0xD1B54A32D192ED03u;
      return mix_bits(mix_bits(words[0] ^ kStep, words[1] ^ 0x9E3779B97F4A7C15u) ^ words[2],
                      words[3] ^ kStep);
    }
  };

  struct CachedWord {
    std::array<std::uint64_t, 4> words{};  // the key; the last byte is never 0 in a used entry
    std::int32_t count = 0;
    std::array<std::int32_t, kMaxIds> ids{};

    bool matches(const WordKey& key) const { return words == key.words; }
    // Stores the ids of a word; words with more than kMaxIds ids are not cached.
    void store(const WordKey& key, std::span<const std::int32_t> of_word) {
      if (of_word.size() > kMaxIds) return;
      words = key.words;
      count = static_cast<std::int32_t>(of_word.size());
      std::copy(of_word.begin(), of_word.end(), ids.begin());
    }
  };
  static_assert(sizeof(CachedWord) == 128,
                "two cache lines, and up to seven ids only the first is read");

  // Returns the only entry in which the key can be stored (direct-mapped cache). The entry holds
  // this key, or another key that the caller may overwrite.
  CachedWord& entry_for_key(const WordKey& key) {
    return entries_[key.hash() & (entries_.size() - 1)];
  }

 private:
  static constexpr std::size_t kEntries = 1 << 15;
  std::vector<CachedWord> entries_ = std::vector<CachedWord>(kEntries);
};

// Byte-pair encoding (BPE) of single words, the `model` of a tokenizer.json.
class BpeModel {
 public:
  // Reusable memory of one encoding thread.
  struct EncodingWorkspace {
    WordCache cache;
    std::vector<BpeSymbol> symbols;
    MergeWorkspace merging;
  };

  BpeModel() = default;
  // `bytes`: true if words are raw bytes and the vocabulary uses the byte-level alphabet.
  BpeModel(BpeModelSpec file, bool bytes, const std::string& where);

  struct BpeWord {
    std::string_view text;     // not empty
    const char* readable_end;  // end of the readable memory that contains the text
    bool is_part = false;      // a part of a longer word
  };

  void encode(BpeWord word, EncodingWorkspace& work, std::vector<std::int32_t>& ids) const;
  // Encodes a word without the cache. Symbol sizes are in bytes of the byte-level alphabet if used.
  void encode_to_symbols(std::string_view word, EncodingWorkspace& work,
                         std::vector<BpeSymbol>& symbols) const;

  const Vocabulary& vocabulary() const { return file_.vocabulary; }

  // Returns true if no merge can cross the boundary between `left` and a text that starts with
  // `next`, so that both sides can be encoded separately.
  bool never_merges_across(std::string_view left, std::string_view next) const;

 private:
  // Appends the initial BPE symbol for one character or byte.
  void add_initial_symbol(std::string_view character, bool first, std::vector<BpeSymbol>& symbols,
                          BpeSymbol& pending) const;
  void split_into_symbols(std::string_view word, std::vector<BpeSymbol>& symbols) const;
  void encode_independent_parts(BpeWord word, EncodingWorkspace& work,
                                std::vector<std::int32_t>& ids) const;
  void encode_uncached(BpeWord word, EncodingWorkspace& work, std::vector<std::int32_t>& ids) const;
  bool is_merge_boundary(const char* at) const;
  void collect_mergeable_byte_pairs();
  void collect_initial_symbol_ids();
  std::uint32_t size_in_vocabulary_alphabet(std::string_view text) const;

  BpeModelSpec file_;
  bool bytes_ = false;
  bool divisible_ = false;  // long words may be encoded in parts
  std::int32_t unknown_id_ = -1;
  Vocabulary whole_;  // whole words and their ids; empty unless ignore_merges
  MergeTable merges_;
  std::array<std::int32_t, 256> initial_{};   // id of a byte or ASCII character, -1 if none
  std::array<std::int32_t, 256> fallback_{};  // id of the token <0xNN>, -1 if none
  std::bitset<65536> joins_;                  // byte pairs (last of left, first of right) of merges
  std::unordered_set<char32_t> joins_mark_;   // last characters of tokens left of U+2581
};

// A section of text: an added token (id >= 0) or ordinary text (id -1).
struct TextSection {
  ByteRange range;
  std::int32_t id;
};

// Trie of strings. Finds the leftmost match and, among matches at the same position, the longest.
class TokenTrie {
 public:
  void add(std::string_view text, std::int32_t id);

  std::optional<TextSection> find_next(std::string_view text, std::size_t from) const;
  // Returns true if a match of any of the strings touches or contains position `at`.
  bool has_match_at(std::string_view text, std::size_t at) const;
  bool empty() const { return longest_ == 0; }

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // node << 8 | byte -> child
  std::vector<std::int32_t> ids_ = {-1};  // id of the string that ends at a node, else -1
  std::string starts_;                    // distinct first bytes of all strings
  std::size_t longest_ = 0;
};

class AddedTokens {
 public:
  // Adds a token. A token that is in the vocabulary keeps its id; others get the next free id.
  void add(const AddedToken& token, const Vocabulary& vocabulary,
           const std::optional<Normalizer>& normalizer);

  // Splits the text at the added tokens that are matched in raw text or, with `normalized`, at
  // those that are matched in normalized text.
  void split_at_added_tokens(std::string_view text, bool normalized,
                             std::vector<TextSection>& sections) const;

  // Returns true if no added token that matches raw text can span a cut before position `at`.
  bool allows_cut_at(std::string_view text, std::size_t at) const {
    return !raw_.has_match_at(text, at);
  }
  bool can_split_normalized_text() const;

  // Returns the string of an added token, normalized if it has that flag; nullopt for other ids.
  std::optional<std::string_view> token_string(std::int32_t id) const;
  std::int32_t find(std::string_view content) const;  // -1 if unknown
  bool is_special(std::string_view token) const { return special_.contains(std::string(token)); }
  std::size_t count_tokens_missing_from(const Vocabulary& vocabulary) const;

 private:
  struct NormalizedAddedToken {
    AddedToken token;
    std::string shown;  // content after normalization, for normalized tokens
  };
  std::map<std::int32_t, NormalizedAddedToken> by_id_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_set<std::string> special_;
  TokenTrie raw_;
  TokenTrie normalized_;
};

class Encoder {
 public:
  struct TokenizationPipeline {
    std::optional<Normalizer> normalizer;
    PreTokenizer pre_tokenizer;
    AddedTokens added_tokens;
    BpeModel model;
  };
  explicit Encoder(TokenizationPipeline parts);

  struct EncodingWorkspace {
    BpeModel::EncodingWorkspace model;
    std::vector<TextSection> sections, inner_sections;
    std::vector<BpeSymbol> symbols;
    PretokenizedSection pieces;
  };

  // Appends the tokens of document[piece], with offsets if `with_sources`. The piece must start and
  // end at a split position (next_split_position()) or at an end of the document. Throws a
  // bad-input error for invalid UTF-8.
  void encode(std::string_view document, ByteRange piece, bool with_sources,
              EncodingWorkspace& work, EncodedTokens& tokens) const;

  // Returns the first position at or after `from` where a cut changes no token, or the text size.
  std::size_t next_split_position(std::string_view document, std::size_t from) const;
  // Returns the last position at or before `from` where a cut changes no token, or 0.
  std::size_t previous_split_position(std::string_view document, std::size_t from) const;

  const AddedTokens& added_tokens() const { return parts_.added_tokens; }
  const Vocabulary& vocabulary() const { return parts_.model.vocabulary(); }

 private:
  struct EncodeRequest {
    std::string_view document;
    bool with_sources;
    EncodingWorkspace& work;
    EncodedTokens& tokens;
  };
  // Appends a token. `string`: its text in the document, the normalized text or the vocabulary.
  static void add_token(const EncodeRequest& job, std::int32_t id, ByteRange source,
                        std::string_view string);
  void encode_section(const EncodeRequest& job, ByteRange section, SectionBoundaryFlags ends) const;
  void encode_normalized(const EncodeRequest& job, const SourceMappedText& text, ByteRange range,
                         bool begins) const;
  void encode_word(const EncodeRequest& job, ByteRange word) const;
  bool is_split_position(std::string_view document, std::size_t at) const;
  bool can_split_before_space(std::string_view document, std::size_t at) const;

  TokenizationPipeline parts_;
  bool keeps_alignment_ = false;  // track alignment even if sources are not requested
  SpaceRepresentation space_form_ = SpaceRepresentation::uncertain;
  bool cut_by_model_ = false;  // a cut also requires BpeModel::never_merges_across()
  bool cut_after_ideograph_ = false;
};

}  // namespace qkscope
