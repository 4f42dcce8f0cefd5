// Tensors that a checkpoint makes of what its files hold, once each when they are first asked for.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "qkscope/tensor.h"

namespace qkscope {

// May be used from several threads; tensors stay where they are.
class KeptTensors {
 public:
  template <typename Make>
  ConstTensorView get(const std::string& name, Make make) {
    const std::lock_guard lock(mutex_);
    auto found = tensors_.find(name);
    if (found == tensors_.end()) found = tensors_.emplace(name, make()).first;
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace qkscope
