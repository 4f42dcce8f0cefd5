// Kernels of a mixture of experts (ops/experts.h has the formula).
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "core/dtype.h"

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

// Slots (ops/experts.h) by expert, ascending within one; each expert's are filled up to a multiple
// of `unit` with copies of the first row. `indices` may have been edited: a number that is not an
// expert's, or is in its row already, is counted nowhere, so that the counts add up to rows times k
// only where all are right.
struct SortArguments {
  const float* indices = nullptr;  // (rows, k)
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t experts = 0;
  std::int64_t unit = 1;
  std::int64_t first_row = 0;        // added to the numbers of rows
  std::int32_t* counts = nullptr;    // (experts) slots of each, without those that fill up
  std::int32_t* row_of = nullptr;    // (sorted) its row; most_sorted_rows (memory_plan.h) there are
  std::int32_t* slot_of = nullptr;   // (sorted) its slot; the first for those that fill up
  std::int32_t* place_of = nullptr;  // (rows, k) where a slot lies among the sorted
};
void sort_by_expert(const SortArguments& arguments, cudaStream_t stream);

constexpr std::int64_t filled_up(std::int64_t rows, std::int64_t unit) {
  return (rows + unit - 1) / unit * unit;
}

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
