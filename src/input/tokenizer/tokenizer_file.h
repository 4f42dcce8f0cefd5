// Parsed content of a tokenizer.json and of the tokenizer_config.json next to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/json.h"
#include "input/checkpoint/gguf.h"
#include "input/tokenizer/vocabulary.h"

namespace qkscope {

// The "model" object of a tokenizer.json.
struct BpeModelSpec {
  Vocabulary vocabulary;
  struct Merge {
    std::int32_t left, right, into;
  };
  std::vector<Merge> merges;
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

  // Settings of tokenizer_config.json.
  std::optional<bool> add_bos, add_eos;
  std::string bos, eos;                   // empty if absent
  std::vector<AddedToken> config_tokens;  // added_tokens_decoder, sorted by id
};

// Reads a tokenizer.json, or the one inside a folder, and its tokenizer_config.json.
TokenizerFile read_tokenizer_file(const std::string& folder_or_file);

// Parses the text of a tokenizer.json. Error messages start with `path`.
TokenizerFile parse_tokenizer(std::string_view text, const std::string& path);

// ---- Tokenizers in the metadata of GGUF files, converted to the equivalent tokenizer.json

// Returns the GGUF file to read the tokenizer from: the path itself, or the only GGUF file of a
// folder without tokenizer.json. Returns "" if there is none.
std::string find_tokenizer_gguf(const std::string& folder_or_file);

// Both functions throw a bad-input error for an unsupported tokenizer type or pre-tokenizer.
TokenizerFile read_gguf_tokenizer(const std::string& path);
TokenizerFile parse_gguf_tokenizer(const GgufMetadata& metadata);

// Ids of the end-of-text, end-of-turn and end-of-message tokens in the metadata of a GGUF file, at
// which llama.cpp stops generating.
std::vector<std::int32_t> gguf_end_tokens(const std::string& path);

}  // namespace qkscope
