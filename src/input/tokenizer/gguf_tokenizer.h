// Converts the tokenizer in the metadata of a GGUF file to the equivalent tokenizer.json.
#pragma once

#include <string>

#include "input/checkpoint/gguf.h"
#include "input/tokenizer/tokenizer_file.h"

namespace qkscope {

// Returns the GGUF file to read the tokenizer from: the path itself, or the only GGUF file of a
// folder without tokenizer.json. Returns "" if there is none.
std::string tokenizer_gguf(const std::string& folder_or_file);

// Both functions throw bad input for an unsupported tokenizer type or pre-tokenizer.
TokenizerFile read_gguf_tokenizer(const std::string& path);
TokenizerFile parse_gguf_tokenizer(const GgufMetadata& metadata);

// Ids of the end-of-text, end-of-turn and end-of-message tokens in the metadata of a GGUF file, at
// which llama.cpp ends a generation.
std::vector<std::int32_t> gguf_end_tokens(const std::string& path);

}  // namespace qkscope
