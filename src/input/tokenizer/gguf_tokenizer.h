// The tokenizer that a GGUF file has in its metadata, as the tokenizer.json that it was made from.
#pragma once

#include <string>

#include "input/checkpoint/gguf.h"
#include "input/tokenizer/tokenizer_file.h"

namespace qkscope {

// The GGUF file that a tokenizer is to be read from: the path itself, or the only one of a folder
// without tokenizer.json; "" where there is none.
std::string tokenizer_gguf(const std::string& folder_or_file);

// A tokenizer of another kind, or one that cuts text into words in a way we do not know, is refused
// by name.
TokenizerFile read_gguf_tokenizer(const std::string& path);
TokenizerFile parse_gguf_tokenizer(const GgufMetadata& metadata);

// Ids of the end-of-text, end-of-turn and end-of-message tokens in the metadata of a GGUF file, at
// which llama.cpp ends a generation.
std::vector<std::int32_t> gguf_end_tokens(const std::string& path);

}  // namespace qkscope
