// Maps a GGUF file to the Hugging Face checkpoint it was converted from: config.json and tensor
// names.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/io/json_fwd.h"
#include "input/checkpoint/gguf.h"

namespace qkscope {

// A tensor of the checkpoint and the transformation that llama.cpp's converter applied.
struct GgufSource {
  const GgufTensor* tensor;
  std::int64_t paired_heads =
      0;                  // heads whose q or k rows are stored as interleaved RoPE pairs; 0: none
  bool adds_one = false;  // Gemma norm: the file stores 1 + weight

  // Returns true if the stored bytes can be used without conversion.
  bool is_view() const { return tensor->type->plain.has_value() && paired_heads == 0 && !adds_one; }
};

struct GgufModel {
  Json config;                                // equivalent config.json
  std::map<std::string, GgufSource> tensors;  // keyed by Hugging Face name
};

// Builds the Hugging Face view of a GGUF file. `file` is the whole file, needed for the RoPE
// frequency factors, which are stored as tensors. The result points into `header`. Throws bad input
// for an unsupported architecture, setting or tensor.
GgufModel read_gguf_model(const GgufHeader& header, std::span<const std::byte> file,
                          const std::string& where);

}  // namespace qkscope
