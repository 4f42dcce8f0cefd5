// The element types of GGUF files: numbers, and blocks of numbers with few bits each and a scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "qkscope/tensor.h"

namespace qkscope {

struct GgufType {
  std::uint32_t id;  // in the file
  const char* name;
  std::int64_t elements;       // of a block; 1: plain numbers
  std::uint64_t bytes;         // of a block
  std::optional<DType> plain;  // the same type of ours, of plain numbers
  // A block into `elements` floats.
  void (*widen)(const std::uint8_t* block, float* values);
};

const GgufType* find_gguf_type(std::uint32_t id);  // null where it is not supported
std::string gguf_type_name(std::uint32_t id);      // also of those that are not
std::string gguf_type_names();                     // those that are, for messages

// Whole blocks to float32, to the bit as the `gguf` package and llama.cpp's reference do: each
// number is a product, or a product and a sum, rounded after each.
void widen_blocks(const GgufType& type, std::span<const std::byte> blocks, float* values);

}  // namespace qkscope
