// A tokenizer.json and the tokenizer_config.json beside it, read but not yet put to work.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/io/json.h"
#include "input/tokenizer/added_tokens.h"
#include "input/tokenizer/bpe_file.h"

namespace qkscope {

struct TokenizerFile {
  std::string path;
  BpeFile model;
  std::vector<AddedToken> added_tokens;
  Json normalizer, pre_tokenizer, post_processor, decoder;  // null where the file has none
  bool truncates_left = false;

  // From tokenizer_config.json.
  std::optional<bool> add_bos, add_eos;
  std::string bos, eos;                   // empty: none
  std::vector<AddedToken> config_tokens;  // its added_tokens_decoder, by id
};

// `folder_or_file`: a tokenizer.json, or a folder that holds one.
TokenizerFile read_tokenizer_file(const std::string& folder_or_file);

// The text of a tokenizer.json; `path` names it in messages.
TokenizerFile parse_tokenizer(std::string_view text, const std::string& path);

}  // namespace qkscope
