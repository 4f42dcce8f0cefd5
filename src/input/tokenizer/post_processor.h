// The `post_processor` of a tokenizer.json: special tokens around the ids, and trimmed offsets.
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
  PostProcessor(const Json& spec, const std::string& where);  // null: ids stay

  // [first] ids [last], either of them -1 for none.
  static PostProcessor around(std::int32_t first, std::int32_t last);

  // How many ids it adds.
  std::int64_t added() const;

  struct Tokens {
    std::vector<std::int32_t> ids;
    std::vector<TokenOffset> offsets;  // empty, or one per id
    std::vector<std::string> strings;  // as offsets; what trimming looks at
  };
  void apply(Tokens& tokens, bool add_special) const;

 private:
  // A place in a template: the ids so far, or special ones.
  struct Piece {
    bool is_sequence;
    std::vector<std::int32_t> ids;
    std::vector<std::string> strings;
  };
  struct Step {
    bool trim = false;
    bool prefix_space = false;  // a first token's single space was added, not there to trim
    std::vector<Piece> pieces;  // empty: ids stay
  };
  void read(const Json& spec, const std::string& where);
  static std::vector<Piece> read_template(const JsonSpec& spec);

  std::vector<Step> steps_;
};

}  // namespace qkscope
