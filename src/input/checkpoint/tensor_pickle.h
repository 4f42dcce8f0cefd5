// The pickle inside a PyTorch checkpoint, read by a machine that knows tensors by name and nothing
// else: no code runs, and any other opcode or global is refused by its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "qkscope/tensor.h"

namespace qkscope {

// A tensor as a view into a storage, which is a member of the zip file.
struct PickledTensor {
  std::string storage;  // its key: "0", "1", ...
  DType dtype = DType::f32;
  std::string stored_dtype;  // "F32"
  std::int64_t offset = 0;   // elements
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // elements
};

// The state dictionary that the pickle holds. `where` names the file in messages.
std::map<std::string, PickledTensor> read_tensor_pickle(std::span<const std::byte> pickle,
                                                        const std::string& where);

}  // namespace qkscope
