// Weights of a GGUF file, presented as the Hugging Face checkpoint it was converted from.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/io/mapped_file.h"
#include "input/checkpoint/gguf.h"
#include "input/checkpoint/tensor_cache.h"
#include "qkscope/tensor.h"

namespace qkscope {

// A tensor of the checkpoint and the transformation that llama.cpp's converter applied.
struct GgufSource {
  const GgufTensor* tensor;
  std::int64_t interleaved_heads = 0;  // heads of q or k rows stored as RoPE pairs; 0: none
  bool stored_plus_one = false;        // Gemma norm: the file stores 1 + weight

  // Returns true if the stored bytes can be used without conversion.
  bool is_view() const {
    return tensor->type->plain.has_value() && interleaved_heads == 0 && !stored_plus_one;
  }
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

// Returns the GGUF file to use: `path` itself, or the only GGUF file of a folder without other
// weights. Returns "" if there is none; throws bad input if there are several.
std::string find_gguf(const std::string& path);

// A memory-mapped GGUF file. Tensor views are valid as long as the GgufFile.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const GgufModel& model() const { return *model_; }

  // Returns a tensor by its Hugging Face name. Plain numbers are a view of the file; quantized
  // tensors are dequantized to float32 on first use and cached. Thread-safe.
  ConstTensorView tensor(const std::string& name) const;

  std::uint64_t stored_bytes() const;   // size of all tensors in the file
  std::uint64_t widened_bytes() const;  // memory for dequantized copies once every tensor was used

 private:
  MappedFile file_;
  std::unique_ptr<const GgufHeader> header_;  // model_ points into the header
  std::unique_ptr<const GgufModel> model_;
  std::unique_ptr<TensorCache> dequantized_ = std::make_unique<TensorCache>();
};

}  // namespace qkscope
