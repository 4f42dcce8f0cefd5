// Launch functions of the kernels of a forward pass, other than attention and matrix products:
// norms and RoPE (norm_and_rope.cu), rows (row_kernels.cu), activations and experts
// (products/mlp_kernels.cu).
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "qkscope/model.h"

namespace qkscope::cuda {

struct DeviceNorm {
  const float* weight = nullptr;  // (n); null: no norm
  const float* bias = nullptr;    // (n) or null
};

// y = x / sqrt(mean(x²) + eps) * weight + bias (RMSNorm), with x - mean(x) instead of x for
// LayerNorm, or y = x without a norm; then residual += y, after y is rounded to its type.
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

// RoPE cosines and sines of every active row, in the activation type.
struct RotaryTableView {
  const void* cos = nullptr;  // (rows, dim / 2)
  const void* sin = nullptr;  // (rows, dim / 2)
  std::int64_t dim = 0;       // rotated part of the head
  std::int64_t begin = 0;     // first rotated dimension of the head
};

// Per-head norm, rotation and query scaling of q and k, fused into one kernel.
struct NormalizeAndRotateArguments {
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
  // `rotary` must be set even without rotation: rotary.dim sets the summation order of the norm.
  RotaryTableView rotary;
  bool rotate = false;
  bool norm_last = false;              // the norm follows the rotation
  bool interleaved = false;            // pairs (2i, 2i+1) instead of (i, i + dim/2)
  bool sorts_pairs = false;            // rotated interleaved pairs move to (i, i + dim/2)
  const float* query_scale = nullptr;  // (rows) or null
  DType dtype = DType::bf16;
};

// Applies norm, rotation and query scaling in place; steps that are not requested are skipped. The
// result of the norm is rounded to the element type before rotation, as an observer would see it.
void normalize_and_rotate(const NormalizeAndRotateArguments& arguments, cudaStream_t stream);

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
struct AttentionSinkArguments {
  void* z = nullptr;             // (rows, n_heads, d_head)
  const float* lse = nullptr;    // (rows, n_heads) to base 2, see SoftmaxRowStats
  const float* sinks = nullptr;  // (n_heads)
  std::int64_t rows = 0;
  std::int64_t n_heads = 0;
  std::int64_t d_head = 0;
  DType dtype = DType::bf16;
};
void apply_sinks(const AttentionSinkArguments& arguments, cudaStream_t stream);

// Keys of latent attention: k (rows, heads, own + shared) = [part per head | shared RoPE part].
struct LatentKeysArguments {
  const void* own = nullptr;     // (rows, heads, own_width)
  const void* shared = nullptr;  // (rows, shared_width)
  void* k = nullptr;             // (rows, heads, own_width + shared_width)
  std::int64_t k_stride = 0;     // elements
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t own_width = 0;
  std::int64_t shared_width = 0;
  DType dtype = DType::bf16;
};
void concatenate_latent_keys(const LatentKeysArguments& arguments, cudaStream_t stream);

// Token embedding: y (count, n) = table[ids] * scale, or (y + table[ids] * scale) * sum_factor; the
// scale is first rounded to the element type.
struct EmbeddingArguments {
  const void* table = nullptr;        // (vocabulary, n)
  const std::int32_t* ids = nullptr;  // (count)
  void* y = nullptr;                  // (count, n)
  std::int64_t count = 0;
  std::int64_t n = 0;
  float scale = 1.0f;
  float sum_factor = 0.0f;  // 0: y is overwritten
  DType dtype = DType::bf16;
};
void embed(const EmbeddingArguments& arguments, cudaStream_t stream);

// Gathers the selected rows and heads of an activation as dense float32.
struct GatherFloatsArguments {
  const void* x = nullptr;              // (rows, heads, width)
  std::int64_t row_stride = 0;          // elements
  const std::int32_t* rows = nullptr;   // (row_count) or null: the first row_count rows
  const std::int32_t* heads = nullptr;  // (head_count) or null: the first head_count heads
  float* y = nullptr;                   // (row_count, head_count, width)
  std::int64_t row_count = 0;
  std::int64_t head_count = 0;
  std::int64_t width = 0;
  DType dtype = DType::bf16;
};
void gather_floats(const GatherFloatsArguments& arguments, cudaStream_t stream);

// Rounds dense float32 x (rows, n) to `dtype` and writes it to y, whose row stride is row_stride.
void write_float_rows(const float* x, void* y, std::int64_t rows, std::int64_t n,
                      std::int64_t row_stride, DType dtype, cudaStream_t stream);

// Copies rows of n elements: y[y_rows[i]] = x[x_rows[i] / k] * factors[x_rows[i]] for i < count. A
// null list of rows stands for 0 to count - 1. For experts, x_rows lists slots row * k + choice.
struct CopyRowsArguments {
  const void* x = nullptr;
  std::int64_t x_stride = 0;             // elements
  const std::int32_t* x_rows = nullptr;  // (count) or null
  std::int64_t k = 1;
  const float* factors = nullptr;  // (rows of x, k) or null: 1
  void* y = nullptr;
  std::int64_t y_stride = 0;             // elements
  const std::int32_t* y_rows = nullptr;  // (count) or null
  std::int64_t count = 0;
  std::int64_t n = 0;
  DType dtype = DType::bf16;
};
void copy_rows(const CopyRowsArguments& arguments, cudaStream_t stream);

// Converts elements: destination (count) of type `to` = scale * source (count) of type `from`,
// which is f32, f16, bf16 or f8_e4m3. Source and destination of the same type may alias.
void convert_elements(const void* source, DType from, void* destination, DType to,
                      std::int64_t count, float scale, cudaStream_t stream);

// Writes scale times the transpose of source (rows, columns), converted from type `from` to type
// `to`, to columns [begin, begin + rows) of destination (columns, stride).
struct TransposeArguments {
  const void* source = nullptr;
  DType from = DType::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  void* destination = nullptr;
  DType to = DType::bf16;
  std::int64_t begin = 0;
  std::int64_t stride = 0;
  float scale = 1.0f;
};
void convert_and_transpose(const TransposeArguments& arguments, cudaStream_t stream);

// Compares two device buffers and waits for the result. Only whole 4-byte words are compared.
bool are_bytes_equal(const void* a, const void* b, std::int64_t bytes, cudaStream_t stream);

// Returns whether this build contains code for the current GPU, by looking up one kernel.
bool has_code_for_gpu();

// y (rows, n) = activation(gate) * up, or activation(gate_up) if `gated` is false. If `up` is
// null, each row of gate_up (rows, 2 n) holds gate, then up; else gate_up (rows, n) holds gate.
struct MlpGateArguments {
  Activation activation = Activation::silu;
  XieluWeights xielu = {};    // parameters of that activation
  ClampedSwiglu swiglu = {};  // parameters of that activation
  bool gated = true;
  const void* gate_up = nullptr;
  const void* up = nullptr;  // (rows, n), or null: stored in gate_up
  void* y = nullptr;         // may alias gate_up if that holds gate alone
  std::int64_t rows = 0;
  std::int64_t n = 0;
  DType dtype = DType::bf16;
};
void apply_gate(const MlpGateArguments& arguments, cudaStream_t stream);

// Gates rows by a learned scalar: y (rows, n) *= sigmoid(x w), with x (rows, in) and w (in).
struct RowGateArguments {
  const void* x = nullptr;
  const void* weight = nullptr;
  void* y = nullptr;
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t n = 0;
  DType dtype = DType::bf16;
};
void apply_row_gate(const RowGateArguments& arguments, cudaStream_t stream);

// Clips `count` values: x = min(max(x, -limit), limit).
void clip(void* x, std::int64_t count, float limit, DType dtype, cudaStream_t stream);

// Soft cap of `count` values: x = cap * tanh(x / cap).
void soft_cap(void* x, std::int64_t count, float cap, DType dtype, cudaStream_t stream);

// Copies 16-bit weight rows, n of gate and n of up, from `from` (2 n, in) to `to` (2 n, in). In the
// interleaved order of `to`, one thread of gated_kernel.cu computes gate and up of eight outputs.
void interleave_gate_up(const void* from, void* to, std::int64_t n, std::int64_t in,
                        cudaStream_t stream);

// Mixture-of-experts kernels (engine/ops/linear.h has the formulas).

// Top-k selection: the k experts of a row with the highest scores, best first; ties: lower index.
struct ChooseExpertsArguments {
  const void* logits = nullptr;  // (rows, experts)
  const float* bias = nullptr;   // (experts) selection bias, or null
  float* weights = nullptr;      // (rows, k)
  float* indices = nullptr;      // (rows, k)
  std::int64_t rows = 0;
  ExpertsConfig config;
  DType dtype = DType::bf16;
};
void choose_experts(const ChooseExpertsArguments& arguments, cudaStream_t stream);

// Counting sort of slots by expert; slots of one expert keep their order. Slot row * k + i
// represents the choice indices[row, i].
struct GroupSlotsArguments {
  const float* indices = nullptr;  // (slots) expert of each slot
  std::int32_t* begin = nullptr;   // (experts + 1) receives the first grouped row of each expert
  std::int32_t* slots = nullptr;   // (slots) receives the slot of each grouped row
  std::int32_t* places = nullptr;  // (slots) receives the grouped row of each slot
  std::int64_t count = 0;          // slots
  std::int64_t experts = 0;
};
void group_slots_by_expert(const GroupSlotsArguments& arguments, cudaStream_t stream);

// Adds expert outputs: y[row] = factor * sum of weights[row, i] x[places[row, i]] over ascending i.
struct CombineExpertsArguments {
  const void* x = nullptr;               // (any, n)
  const float* weights = nullptr;        // (rows, k), or null: 1
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
