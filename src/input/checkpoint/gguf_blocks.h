// Element types of GGUF files: plain numbers, and quantized blocks with shared scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "qkscope/tensor.h"

namespace qkscope {

struct GgufType {
  std::uint32_t id;  // type number in the file
  const char* name;
  std::int64_t elements;       // elements per block; 1 for plain numbers
  std::uint64_t bytes;         // bytes per block
  std::optional<DType> plain;  // the equivalent DType of plain numbers
  // Dequantizes one block to `elements` floats.
  void (*widen)(const std::uint8_t* block, float* values);
};

const GgufType* find_gguf_type(std::uint32_t id);  // null if the type is not supported
std::string gguf_type_name(std::uint32_t id);      // also names unsupported types
std::string gguf_type_names();                     // supported types, for error messages

// Dequantizes whole blocks to float32. Results are bit-identical to the Python package `gguf` and
// to llama.cpp's reference: every product and sum is rounded separately, without FMA.
void widen_blocks(const GgufType& type, std::span<const std::byte> blocks, float* values);

}  // namespace qkscope
