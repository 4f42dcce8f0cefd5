// The header of a safetensors file: eight bytes of length (little endian), then a JSON object that
// names every tensor with its dtype, shape and place in the data section behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "qkscope/tensor.h"

namespace qkscope {

struct TensorEntry {
  DType dtype;               // u8 where we have no such type: `readable` is false then
  std::string stored_dtype;  // as the file spells it: "BF16"
  std::vector<std::int64_t> shape;
  std::uint64_t begin;  // bytes within the data section
  std::uint64_t end;
  bool readable = true;
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;  // of the data section within the file
};

// Reads and checks the header against the whole file: every name once, every shape and dtype
// consistent with its bytes, the data section covered exactly once. `where` names the file in
// messages. A tensor of a dtype we do not know is kept, not readable.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& where);

}  // namespace qkscope
