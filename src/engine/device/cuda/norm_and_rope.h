// Norms, RoPE, query scaling and attention sinks.
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

void normalize_rows(const NormArguments& arguments, cudaStream_t stream);

// cos and sin of every running row, in the type of the activations.
struct RotaryView {
  const void* cos = nullptr;  // (rows, dim / 2)
  const void* sin = nullptr;  // (rows, dim / 2)
  std::int64_t dim = 0;       // rotated part of the head
};

// Per-head norm, rotation and query scaling of q and k, fused into one kernel.
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
  // Given even if `rotate` is false: its dim decides the summation order of the norm.
  RotaryView rotary;
  bool rotate = false;
  bool interleaved = false;            // pairs (2i, 2i+1) instead of (i, i + dim/2)
  const float* query_scale = nullptr;  // (rows) or null
  DType dtype = DType::bf16;
};

// Applies norm, rotation and query scaling in place, each where it is given. The result of the norm
// is rounded to the element type before rotation, as an observer would see it.
void normalize_and_rotate(const HeadsArguments& arguments, cudaStream_t stream);

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

// Applies a learned attention sink (gpt-oss): an extra score without a value that joins the
// softmax. Given lse, the log-sum-exp of a row's scores, each weight becomes
//    exp(s) / (exp(lse) + exp(sink)) = exp(s - lse) sigmoid(lse - sink),
// so any kernel that returns the log-sum-exp computes z without the sink, and one factor per row
// and head corrects z.
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
