// RMSNorm and the addition to the residual.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "core/dtype.h"

namespace qkscope::cuda {

// y = x / sqrt(mean(x²) + eps) * weight, or x without a weight; then residual += y. Sums are
// float32; y is rounded to the type before it is added.
struct NormArguments {
  const void* x = nullptr;        // (rows, n)
  const float* weight = nullptr;  // (n) or null
  void* y = nullptr;              // (rows, n) or null; may be x
  void* residual = nullptr;       // (rows, n) or null
  std::int64_t rows = 0;
  std::int64_t n = 0;
  float eps = 0.0f;
  DType dtype = DType::bf16;
};

void norm(const NormArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
