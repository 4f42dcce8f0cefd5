// Kernels of a mixture of experts (ops/experts.h has the formula).
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/dtype.h"

namespace qkscope::cuda {

// For each row the k highest logits, highest first and of equal ones the first.
struct ChooseArguments {
  const void* logits = nullptr;  // (rows, experts)
  float* weights = nullptr;      // (rows, k)
  float* indices = nullptr;      // (rows, k)
  std::int64_t rows = 0;
  std::int64_t experts = 0;
  std::int64_t k = 0;
  bool normalized = false;  // the softmax is over the chosen alone
  DType dtype = DType::bf16;
};
void choose_experts(const ChooseArguments& arguments, cudaStream_t stream);

// y[row] = factor times the sum over i of weights[row, i] x[places[row, i]], in the order of i;
// summed in float32 and rounded once.
struct CombineArguments {
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
void combine_experts(const CombineArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
