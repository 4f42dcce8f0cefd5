// RMSNorm and LayerNorm, fused with the residual addition.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

struct DeviceNorm {
  const float* weight = nullptr;  // (n); null: no norm
  const float* bias = nullptr;    // (n) or null
};

// y = x / sqrt(mean(x²) + eps) * weight + bias (RMSNorm), with x - mean(x) instead of x for
// LayerNorm, or y = x without a norm; then residual += y. Sums are float32; y is rounded to the
// element type before the addition.
struct NormArguments {
  const void* x = nullptr;  // (rows, n)
  DeviceNorm norm;
  NormKind kind = NormKind::rms;
  void* y = nullptr;         // (rows, n) or null; may be x
  void* residual = nullptr;  // (rows, n) or null
  std::int64_t rows = 0;
  std::int64_t n = 0;
  std::int64_t row_stride = 0;  // elements from one row of x and y to the next; 0: n
  float eps = 0.0f;
  DType dtype = DType::bf16;
};

void norm(const NormArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
