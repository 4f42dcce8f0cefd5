// What happens to q and k between projection and dot product, in one pass over them.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/dtype.h"

namespace qkscope::cuda {

// cos and sin of every running row, in the type of the activations.
struct RotaryView {
  const void* cos = nullptr;  // (rows, dim / 2)
  const void* sin = nullptr;  // (rows, dim / 2)
  std::int64_t dim = 0;       // rotated part of the head
};

struct HeadsArguments {
  void* q = nullptr;            // (rows, n_heads, d_head)
  void* k = nullptr;            // (rows, n_kv_heads, d_head)
  std::int64_t row_stride = 0;  // elements from one row of q and k to the next
  std::int64_t rows = 0;
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t d_head = 0;
  const float* q_norm = nullptr;  // (d_head) or null: no norm
  const float* k_norm = nullptr;  // (d_head) or null: no norm
  float eps = 0.0f;
  RotaryView rotary;  // of the layer, also when it does not turn now: its halves
                      // decide in which order the norm sums
  bool rotate = false;
  bool interleaved = false;            // pairs (2i, 2i+1) instead of (i, i + dim/2)
  const float* query_scale = nullptr;  // (rows) or null
  DType dtype = DType::bf16;
};

// Norm, rotation and query scaling, each where it is given, in place. The norm's result is rounded
// to the type before it is rotated, as it is when it is shown.
void finish_heads(const HeadsArguments& arguments, cudaStream_t stream);

struct RotaryTableArguments {
  const std::int32_t* positions = nullptr;  // (rows)
  const std::int32_t* sequences = nullptr;  // (rows)
  const float* inverse = nullptr;           // (sequences, dim / 2) radians per position
  const float* factors = nullptr;           // (sequences) attention factors
  void* cos = nullptr;                      // (rows, dim / 2)
  void* sin = nullptr;                      // (rows, dim / 2)
  std::int64_t rows = 0;
  std::int64_t half = 0;
  DType dtype = DType::bf16;
};

void fill_rotary_table(const RotaryTableArguments& arguments, cudaStream_t stream);

// z of heads with a learned sink: a score of no value that joins the softmax. With lse the
// logarithm of the sum of the exponentials of a row's scores, weights become
//   exp(s) / (exp(lse) + exp(sink)) = exp(s - lse) sigmoid(lse - sink):
// any kernel that leaves the log-sum-exp gives z without the sink, and one factor for each row and
// head is all that is missing.
struct SinkArguments {
  void* z = nullptr;             // (rows, n_heads, d_head)
  const float* lse = nullptr;    // (rows, n_heads) to base 2, see RowSums
  const float* sinks = nullptr;  // (n_heads)
  std::int64_t rows = 0;
  std::int64_t n_heads = 0;
  std::int64_t d_head = 0;
  DType dtype = DType::bf16;
};
void apply_sinks(const SinkArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
