// Restricted unpickler for PyTorch checkpoints. Only the opcodes and globals of tensor dictionaries
// are accepted, so that no code can run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "qkscope/tensor.h"

namespace qkscope {

// A tensor as a strided view of a storage. Each storage is one member of the zip file.
struct PickledTensor {
  std::string storage;  // storage key: "0", "1", ...
  DType dtype = DType::f32;
  std::int64_t offset = 0;  // in elements
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements
};

// Returns the state dictionary stored in the pickle. Error messages start with `where`.
std::map<std::string, PickledTensor> read_tensor_pickle(std::span<const std::byte> pickle,
                                                        const std::string& where);

}  // namespace qkscope
