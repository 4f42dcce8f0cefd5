// The `added_tokens` of a tokenizer.json: tokens that are matched in the text before BPE runs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "input/tokenizer/aligned_text.h"
#include "input/tokenizer/normalizer.h"
#include "input/tokenizer/vocabulary.h"

namespace qkscope {

struct AddedToken {
  std::string content;
  bool single_word = false;  // match only if no word character is adjacent
  bool lstrip = false;       // the match includes white space to its left
  bool rstrip = false;       // the match includes white space to its right
  bool normalized = false;   // match in the normalized text
  bool special = false;
};

// Trie of strings. Finds the leftmost match, and among matches at one position the longest.
class TokenFinder {
 public:
  void add(std::string_view text, std::int32_t id);

  struct Found {
    Span range;
    std::int32_t id;
  };
  std::optional<Found> next(std::string_view text, std::size_t from) const;
  // Returns true if an occurrence of any string touches or contains position `at`.
  bool touches(std::string_view text, std::size_t at) const;
  bool empty() const { return longest_ == 0; }

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // node << 8 | byte -> child
  std::vector<std::int32_t> ids_ = {-1};  // id of the string that ends at a node, else -1
  std::string starts_;                    // distinct first bytes of all strings
  std::size_t longest_ = 0;
};

class AddedTokens {
 public:
  // Adds a token. Tokens of the vocabulary keep their id; others get the next free id.
  void add(const AddedToken& token, const Vocabulary& vocabulary,
           const std::optional<Normalizer>& normalizer);

  // A section of text: an added token (id >= 0) or ordinary text (id -1).
  struct Section {
    Span range;
    std::int32_t id;
  };
  // Splits the text at raw added tokens, or at normalized ones if `normalized` is true.
  void split(std::string_view text, bool normalized, std::vector<Section>& sections) const;

  // Returns true if no raw added token can span a cut before position `at`.
  bool allows_cut(std::string_view text, std::size_t at) const { return !raw_.touches(text, at); }
  bool allows_cuts() const;

  // Returns the token's string as the decoder uses it.
  std::optional<std::string_view> token(std::int32_t id) const;
  std::int32_t find(std::string_view content) const;  // -1 if unknown
  bool is_special(std::string_view token) const { return special_.contains(std::string(token)); }
  std::size_t count_outside(const Vocabulary& vocabulary) const;

 private:
  struct Known {
    AddedToken token;
    std::string shown;  // content after normalization, for normalized tokens
  };
  std::map<std::int32_t, Known> by_id_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_set<std::string> special_;
  TokenFinder raw_;
  TokenFinder normalized_;
};

}  // namespace qkscope
