// Lazily computed tensors that are kept for the lifetime of a checkpoint.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "qkscope/tensor.h"

namespace qkscope {

// Thread-safe. Views stay valid because std::map never moves its elements.
class TensorCache {
 public:
  template <typename Compute>
  ConstTensorView get(const std::string& name, Compute compute) {
    const std::lock_guard lock(mutex_);
    auto found = tensors_.find(name);
    if (found == tensors_.end()) found = tensors_.emplace(name, compute()).first;
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace qkscope
