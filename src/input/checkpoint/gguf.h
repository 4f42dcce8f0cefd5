// GGUF files (the llama.cpp format): metadata, element types and tensor positions, and a view of
// the file as the Hugging Face checkpoint from which it was converted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/io/json.h"
#include "base/io/mapped_file.h"
#include "input/checkpoint/safetensors.h"
#include "qkscope/tensor.h"

namespace qkscope {

// A GGUF element type: plain numbers, or quantized blocks with their own scales (dequantize.cpp).
struct GgufDType {
  std::uint32_t id;  // type number in the file
  const char* name;
  std::int64_t elements;       // elements per block; 1 for plain numbers
  std::uint64_t bytes;         // bytes per block
  std::optional<DType> plain;  // the equivalent DType of plain numbers
  // Dequantizes one block to `elements` floats.
  void (*dequantize)(const std::uint8_t* block, float* values);
};

const GgufDType* find_gguf_dtype(std::uint32_t id);  // null if the type is not supported
std::string gguf_dtype_name(std::uint32_t id);       // also names unsupported types
std::string supported_gguf_dtype_names();            // comma-separated, for error messages

// Dequantizes whole blocks to float32. Results are bit-identical to the Python package `gguf` and
// to llama.cpp's reference: every product and sum is rounded separately, without FMA.
void dequantize_blocks(const GgufDType& type, std::span<const std::byte> blocks, float* values);

struct GgufTensor {
  std::string name;
  const GgufDType* type;
  std::vector<std::int64_t> shape;  // outermost dimension first; reversed in the file
  std::uint64_t begin;              // byte offset in the file
  std::uint64_t end;

  std::int64_t element_count() const;                                    // number of elements
  std::vector<float> dequantize(std::span<const std::byte> file) const;  // all elements
};

struct GgufHeader {
  // Metadata values: numbers, booleans, strings (raw bytes, possibly invalid UTF-8) or lists.
  std::map<std::string, Json> metadata;
  std::map<std::string, GgufTensor> tensors;
};

// Parses the header and checks that names are unique, element types are supported and tensors lie
// inside the file. Checks lengths before allocating memory. Error messages start with `where`.
GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& where);

// Typed access to GGUF metadata. A missing key without `fallback` is a bad-input error.
class GgufMetadata {
 public:
  GgufMetadata(const GgufHeader& header, std::string where)
      : header_(&header), where_(std::move(where)) {}

  const std::string& source_path() const { return where_; }
  bool has(const std::string& key) const { return header_->metadata.contains(key); }
  const Json& at(const std::string& key) const;
  const Json& array(const std::string& key) const;
  std::string text(const std::string& key, std::optional<std::string> fallback = {}) const;
  bool flag(const std::string& key, bool fallback) const;
  std::int64_t natural_number(const std::string& key,
                              std::optional<std::int64_t> fallback = {}) const;
  double real_number(const std::string& key) const;

  // Throws a bad-input error that shows the key, its value and `expected`.
  [[noreturn]] void fail(const std::string& key, std::string_view expected) const;

 private:
  const GgufHeader* header_;
  std::string where_;
};

// Permutation that llama.cpp's converter applied to the rows or columns from index `first` on: each
// block (outer, inner, unit) is stored as (inner, outer, unit). No permutation if `outer` is 0.
struct TensorPermutation {
  std::int64_t outer = 0, inner = 0, unit = 1, first = 0;
  bool columns = false;

  std::int64_t stored_index(std::int64_t index) const;  // returns the index in the file
  bool operator==(const TensorPermutation&) const = default;
};

// A tensor in a GGUF file and the transformations that llama.cpp's converter applied to it.
struct GgufTensorSource {
  const GgufTensor* tensor;
  std::vector<std::int64_t> shape;     // in the checkpoint
  TensorPermutation order = {};        // of q and k for interleaved RoPE, or of value heads
  bool stored_plus_one = false;        // Gemma norm: the file stores 1 + weight
  bool stored_negative_exp = false;    // A_log of Mamba 2: the file stores -exp(weight)
  const GgufTensor* values = nullptr;  // MLA: attn_v_b, where `tensor` is attn_k_b

  bool needs_conversion() const {
    return !tensor->type->plain.has_value() || order.outer != 0 || stored_plus_one ||
           stored_negative_exp || values != nullptr;
  }
};

struct GgufModel {
  Json config;                                      // equivalent config.json
  std::map<std::string, GgufTensorSource> tensors;  // keyed by Hugging Face name
};

// Builds the Hugging Face view of a GGUF file. `file` is the whole file, because RoPE frequency
// factors belong to the config but are stored as tensors. The result points into `header`. Throws
// a bad-input error for an unsupported architecture, setting or tensor.
GgufModel read_gguf_model(const GgufHeader& header, std::span<const std::byte> file,
                          const std::string& where);

// Returns the GGUF file to use: `path` itself, or the only GGUF file in a folder without other
// weights. Returns "" if there is none; throws a bad-input error if there are several.
std::string find_gguf_file(const std::string& path);

// A memory-mapped GGUF file. Tensor views must not outlive the GgufFile.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const GgufModel& model() const { return *model_; }

  // Returns a tensor by its Hugging Face name. Tensors that need no conversion are views of the
  // file; other tensors are converted (quantized ones to float32) on first use and cached.
  // Thread-safe.
  ConstTensorView tensor(const std::string& name) const;

  std::uint64_t stored_bytes() const;       // size of all tensors in the file
  std::uint64_t dequantized_bytes() const;  // memory once all tensors are dequantized

 private:
  MappedFile file_;
  std::unique_ptr<const GgufHeader> header_;  // model_ points into the header
  std::unique_ptr<const GgufModel> model_;
  std::unique_ptr<TensorCache> dequantized_ = std::make_unique<TensorCache>();
};

}  // namespace qkscope
