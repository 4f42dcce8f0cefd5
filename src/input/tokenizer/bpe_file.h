// The "model" object of a tokenizer.json: vocabulary and merges, parsed in one pass.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "input/tokenizer/json_cursor.h"
#include "input/tokenizer/vocabulary.h"

namespace qkscope {

struct BpeFile {
  Vocabulary vocabulary;
  struct Pair {
    std::int32_t left, right, into;
  };
  std::vector<Pair> merges;
  std::optional<std::string> unknown;  // unk_token
  std::string continuing_prefix;       // continuing_subword_prefix
  bool fuse_unknown = false;           // fuse_unk
  bool byte_fallback = false;
  bool ignore_merges = false;
};

// Parses the model. The cursor must be positioned before its object. Error messages start with
// `where`.
BpeFile read_bpe_file(JsonCursor& cursor, const std::string& where);

}  // namespace qkscope
