// The `post_processor` of a tokenizer.json: adds special tokens and trims offsets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/io/json_fwd.h"
#include "qkscope/tokenizer.h"

namespace qkscope {

class JsonSpec;

class PostProcessor {
 public:
  PostProcessor() = default;
  PostProcessor(const Json& spec, const std::string& where);  // null: ids stay unchanged

  // Returns a processor that produces [first] ids [last]; -1 omits a token.
  static PostProcessor around(std::int32_t first, std::int32_t last);

  // Returns the number of special tokens added to a text.
  std::int64_t added() const;

  struct Tokens {
    std::vector<std::int32_t> ids;
    std::vector<TokenOffset> offsets;  // empty, or one per id
    std::vector<std::string> strings;  // like offsets; needed for trimming
  };
  void apply(Tokens& tokens, bool add_special) const;

 private:
  // An element of a template: the sequence of ids, or special tokens.
  struct Piece {
    bool is_sequence;
    std::vector<std::int32_t> ids;
    std::vector<std::string> strings;
  };
  struct Step {
    bool trim = false;
    bool prefix_space = false;  // a single added leading space is not trimmed
    std::vector<Piece> pieces;  // empty: ids stay unchanged
  };
  void read(const Json& spec, const std::string& where);
  static std::vector<Piece> read_template(const JsonSpec& spec);

  std::vector<Step> steps_;
};

}  // namespace qkscope
