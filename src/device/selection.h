// What is looked at of an activation, and what is kept of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "qkscope/tensor.h"

namespace qkscope {

// All of it, or rows, or rows and heads; ascending.
struct Selection {
  std::span<const std::int64_t> rows;   // of the batch; empty: all
  std::span<const std::int64_t> heads;  // of q, k, v or z; empty: all
};

// An activation of someone's own, float32, where the backend computes.
struct ActivationCopy {
  std::shared_ptr<void> memory;
  TensorView view;
};

}  // namespace qkscope
