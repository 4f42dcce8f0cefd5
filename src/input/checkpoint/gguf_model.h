// A GGUF file as the Hugging Face checkpoint that it was made from: the config.json of its family
// and the names that tensors have there.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/io/json_fwd.h"
#include "input/checkpoint/gguf.h"

namespace qkscope {

// A tensor of the checkpoint, and what llama.cpp's converter did to it.
struct GgufSource {
  const GgufTensor* tensor;
  std::int64_t paired_heads = 0;  // rows of so many heads lie in pairs that rotate together; 0: not
  bool adds_one = false;          // a norm that multiplies by 1 + weight, stored with the one

  // Whether it lies in the file as it is used.
  bool is_view() const { return tensor->type->plain.has_value() && paired_heads == 0 && !adds_one; }
};

struct GgufModel {
  Json config;                                // as config.json would say it
  std::map<std::string, GgufSource> tensors;  // by their names in the checkpoint
};

// `file` holds the bytes of small tensors that are settings, the factors of RoPE. The model points
// into `header`. An architecture, a setting or a tensor that we have no place for is refused by
// name.
GgufModel read_gguf_model(const GgufHeader& header, std::span<const std::byte> file,
                          const std::string& where);

}  // namespace qkscope
