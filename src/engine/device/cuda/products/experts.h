// Mixture-of-experts kernels (engine/ops/experts.h has the formulas).
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/dtype.h"

namespace qkscope::cuda {

// Top-k selection: for each row the k highest logits in descending order; ties go to the lower
// index.
struct ChooseExpertsArguments {
  const void* logits = nullptr;  // (rows, experts)
  float* weights = nullptr;      // (rows, k)
  float* indices = nullptr;      // (rows, k)
  std::int64_t rows = 0;
  std::int64_t experts = 0;
  std::int64_t k = 0;
  bool normalized = false;  // softmax over the selected logits only
  DType dtype = DType::bf16;
};
void choose_experts(const ChooseExpertsArguments& arguments, cudaStream_t stream);

// y[row] = factor * sum over i of weights[row, i] x[places[row, i]], in the order of i; accumulated
// in float32 and rounded once.
struct CombineExpertsArguments {
  const void* x = nullptr;               // (any, n)
  const float* weights = nullptr;        // (rows, k)
  const std::int32_t* places = nullptr;  // (rows, k) rows of x
  void* y = nullptr;                     // (rows, n)
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t n = 0;
  float factor = 1.0f;
  DType dtype = DType::bf16;
};
void combine_experts(const CombineExpertsArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
