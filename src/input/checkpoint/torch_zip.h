// PyTorch checkpoints since version 1.6: a zip file with one pickle that describes the tensors and
// one member per storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "input/checkpoint/safetensors.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Returns the tensors and their byte ranges in the form of a safetensors header.
SafetensorsHeader parse_torch_zip(std::span<const std::byte> file, const std::string& where);

// Restricted unpickler (tensor_pickle.cpp). Only the opcodes and globals of tensor dictionaries are
// accepted, so that no code can run.

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
