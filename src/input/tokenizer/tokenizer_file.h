// Parsed content of a tokenizer.json and of the tokenizer_config.json next to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/io/json.h"
#include "input/tokenizer/added_tokens.h"
#include "input/tokenizer/json_cursor.h"
#include "input/tokenizer/vocabulary.h"

namespace qkscope {

// The "model" object of a tokenizer.json.
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

struct TokenizerFile {
  std::string path;
  BpeFile model;
  std::vector<AddedToken> added_tokens;
  Json normalizer, pre_tokenizer, post_processor, decoder;  // null if absent
  bool truncates_left = false;

  // Settings of tokenizer_config.json.
  std::optional<bool> add_bos, add_eos;
  std::string bos, eos;                   // empty if absent
  std::vector<AddedToken> config_tokens;  // added_tokens_decoder, sorted by id
};

// Reads a tokenizer.json, or the one inside a folder, and its tokenizer_config.json.
TokenizerFile read_tokenizer_file(const std::string& folder_or_file);

// Parses the text of a tokenizer.json. Error messages start with `path`.
TokenizerFile parse_tokenizer(std::string_view text, const std::string& path);

}  // namespace qkscope
