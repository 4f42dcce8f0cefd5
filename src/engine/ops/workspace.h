// Memory for packed matrices that only grows: a forward pass asks for the same few sizes again and
// again.
#pragma once

#include "qkscope/tensor.h"

namespace qkscope {

class Workspace {
 public:
  // At least so many floats, at a 64-byte address; what was in them is lost.
  float* floats(std::int64_t count) {
    if (memory_.empty() || memory_.size() < count) memory_ = Tensor({count});
    return memory_.data<float>();
  }

 private:
  Tensor memory_;
};

}  // namespace qkscope
