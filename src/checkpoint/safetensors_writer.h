// Writing safetensors files.
#pragma once

#include <map>
#include <span>
#include <string>

#include "qkscope/tensor.h"

namespace qkscope {

struct NamedTensor {
  std::string name;
  ConstTensorView tensor;  // contiguous
};

// The file appears whole or not at all. Tensors lie in the given order; the data section starts at
// a multiple of 64 bytes (the header is padded with spaces). Names must differ.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace qkscope
