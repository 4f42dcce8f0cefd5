// The `added_tokens` of a tokenizer.json: tokens found in the text before the model sees it.
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
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for in the normalized text
  bool special = false;
};

// Finds the leftmost, then longest, of a set of strings.
class TokenFinder {
 public:
  void add(std::string_view text, std::int32_t id);

  struct Found {
    Span range;
    std::int32_t id;
  };
  std::optional<Found> next(std::string_view text, std::size_t from) const;
  // Whether some string stands in the text so that it touches or contains position `at`.
  bool touches(std::string_view text, std::size_t at) const;
  bool empty() const { return longest_ == 0; }

 private:
  std::size_t next_start(std::string_view text, std::size_t from) const;

  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // node << 8 | byte -> node
  std::vector<std::int32_t> ids_ = {-1};                       // of the string that ends at a node
  std::string starts_;                                         // first bytes, each once
  std::size_t longest_ = 0;
};

class AddedTokens {
 public:
  // Each token keeps the id the vocabulary gives it; others get the next free ones in order.
  void add(const AddedToken& token, const Vocabulary& vocabulary, const Normalizer* normalizer);

  // A stretch of text that is an added token (id >= 0) or is none.
  struct Section {
    Span range;
    std::int32_t id;
  };
  // Cuts at the tokens that are looked for in the text as it comes, or in the normalized text.
  void split(std::string_view text, bool normalized, std::vector<Section>& sections) const;

  // Whether it is certain that no token depends on both sides of a cut before a space.
  bool allows_cut(std::string_view text, std::size_t at) const { return !raw_.touches(text, at); }
  bool allows_cuts() const;

  // The token's string as the decoder sees it.
  std::optional<std::string_view> token(std::int32_t id) const;
  std::int32_t find(std::string_view content) const;  // -1: not there
  bool is_special(std::string_view token) const { return special_.contains(std::string(token)); }
  std::size_t count_outside(const Vocabulary& vocabulary) const;

 private:
  struct Known {
    AddedToken token;
    std::string shown;  // normalized where the token is
  };
  std::map<std::int32_t, Known> by_id_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_set<std::string> special_;
  TokenFinder raw_;
  TokenFinder normalized_;
};

}  // namespace qkscope
