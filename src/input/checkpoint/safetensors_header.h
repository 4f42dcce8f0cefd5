// Header of a safetensors file: an 8-byte little-endian length, then a JSON object with dtype,
// shape and data offsets of every tensor.
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
  DType dtype;               // u8 if the stored dtype is unsupported; `readable` is then false
  std::string stored_dtype;  // the dtype's name in the file, e.g. "BF16"
  std::vector<std::int64_t> shape;
  std::uint64_t begin;  // byte offset in the data section
  std::uint64_t end;
  bool readable = true;
};

struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  std::uint64_t data_offset = 0;  // byte offset of the data section in the file
};

// Parses the header and validates it against the whole file: names are unique, shape and dtype
// match the byte count, and the tensors cover the data section exactly once. Tensors of an
// unsupported dtype are listed with readable = false. Error messages start with `where`.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& where);

}  // namespace qkscope
