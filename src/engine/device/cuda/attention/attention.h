// Softmax attention for head sizes up to 512 and every mask that gives each query one contiguous
// range of keys: causal, sliding window, packed sequences, and any of them for a subset of the
// queries. attention.cpp checks arguments and dispatches; each element type has its own file
// (attention_bf16.cu, attention_f16.cu, attention_f32.cu) so that they compile in parallel. Also
// the choice between this kernel and those of FlashInfer and cuDNN.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "base/core/dtype.h"

namespace qkscope {
struct RowScores;
}

namespace qkscope::cuda {

class ActiveRows;

// Softmax statistics of each row of scores, a by-product of attention. Each array has shape
// (rows, n_heads) in device memory, or is null.
struct SoftmaxRowSums {
  float* lse = nullptr;      // log2 of the sum of the exponentials of the scaled scores
  float* largest = nullptr;  // largest q.k, unscaled
};

// q and k of one layer on the GPU.
struct QueriesAndKeys {
  const void* q = nullptr;      // (rows, n_heads, d_head)
  const void* k = nullptr;      // (rows, n_kv_heads, d_head)
  std::int64_t row_stride = 0;  // elements from one row of q to the next
  // Elements from one row of k to the next; differs from row_stride for cached keys.
  std::int64_t k_stride = 0;
  std::int64_t n_heads = 0, n_kv_heads = 0, d_head = 0;
  float scale = 1.0f;            // multiplies q.k
  float softcap = 0.0f;          // soft cap: cap tanh(score / cap); 0: none
  std::int64_t window = 0;       // visible keys of a query, itself included; 0: all before it
  std::int64_t chunk = 0;        // a query sees keys of its own chunk; 0: of all chunks
  DType dtype = DType::bf16;     // type of q and k: bf16, f16 or f32
  const float* sinks = nullptr;  // (n_heads) extra score in each softmax, or null
};

// All pointers are device pointers. The heads of a row are contiguous; strides are in elements. Any
// stride and alignment works; 16-byte aligned rows are the fast path. The ranges of keys replace
// window and chunk, and sinks are not applied.
struct AttentionArguments : QueriesAndKeys {
  const void* v = nullptr;  // (rows, n_kv_heads, d_value)
  void* z = nullptr;        // (queries, n_heads, d_value)
  std::int64_t v_stride = 0, z_stride = 0;
  const std::int32_t* first_key = nullptr;  // (queries) first visible row of k
  const std::int32_t* last_key = nullptr;   // (queries) last visible row of k, >= first_key
  // Shape (queries), or null. First row of k in the query's sequence, <= first_key. Key tiles start
  // at this row; see attention() below.
  const std::int32_t* sequence_begin = nullptr;
  std::int64_t queries = 0;       // rows of q
  std::int64_t d_value = d_head;  // width of a head of v and z
  SoftmaxRowSums row_sums = {};   // (queries, n_heads) or null
};

// z = softmax(scale q kᵀ, capped and masked) v, as flash attention: key tiles with an online
// softmax. Scores and sums are float32; with 16-bit types the weights are rounded to the element
// type for the product with v. Queries should be in ascending order, because a block of consecutive
// queries reads every tile that one of them attends to.
//
// The result is deterministic. Rounding depends on where the key tiles of a query start. With
// sequence_begin the tiles start at the query's sequence, so a row is bit-identical whatever the
// position of the sequence in the batch and whatever the other queries. Without sequence_begin the
// tiles start at the first key visible to any query of the block: the same for causal attention,
// except for blocks that span two sequences; with a sliding window, rounding then depends on the
// subset of queries.
void attention(const AttentionArguments& arguments, cudaStream_t stream);

// Attention kernels per element type; T is __nv_bfloat16 or __half. The caller has checked the
// arguments; queries > 0.
template <typename T>
void attention_16bit(const AttentionArguments& arguments, cudaStream_t stream);
void attention_f32(const AttentionArguments& arguments, cudaStream_t stream);

enum class AttentionKernel : std::uint8_t { flash_infer, cudnn, own };

struct AttentionProperties {
  int capability = 0;  // compute capability of the GPU: 90 is Hopper
  DType dtype = DType::bf16;
  std::int64_t d_head = 0;
  std::int64_t d_value = d_head;
  bool softcap = false;      // scores are soft-capped
  bool sinks = false;        // learned attention sinks
  bool own_scale = false;    // the layer's scale differs from the model's
  bool chosen_rows = false;  // queries are a subset of the rows
  bool chunks = false;       // attention in chunks
};

// Optional kernels that were compiled into this build.
struct AttentionLibraries {
  bool flash_infer = true;
  bool cudnn = true;
};

// Returns FlashInfer's kernel on Hopper where it has an instance for the head size, cuDNN's on
// other GPUs and for other head sizes, and our own for everything else. The choice depends on GPU
// and model alone, so repeated runs use the same kernel. cuDNN may still lack a kernel for a shape;
// the caller then falls back to our own.
AttentionKernel choose_attention_kernel(const AttentionProperties& attention,
                                        const AttentionLibraries& has);

// ---- Attention scores and patterns of selected queries; score_rows.cu has the kernels

// All pointers are device pointers.
struct ScoreRowsArguments : QueriesAndKeys {
  const std::int32_t* rows = nullptr;            // (count) selected rows of q
  const std::int32_t* first_key = nullptr;       // (count) first visible row of k
  const std::int32_t* last_key = nullptr;        // (count) last visible row of k, >= first_key
  const std::int32_t* sequence_begin = nullptr;  // (count) row of k that is column 0
  std::int64_t count = 0;
  std::int64_t keys = 0;    // columns; last_key - sequence_begin < keys
  float* scores = nullptr;  // (n_heads, count, keys) scale q.k, -infinity where masked
  // Shape (n_heads, count, keys), or null. Softmax of the scores, 0 where masked.
  float* pattern = nullptr;
};

// Products and sums are float32 for every type of q and k, in an order that depends only on d_head
// and the column, so the results of a row are bit-identical wherever it is in the batch.
void score_rows(const ScoreRowsArguments& arguments, cudaStream_t stream);

// Launch functions of the score kernels. The caller has checked the arguments; count and keys > 0.
void launch_score_kernel(const ScoreRowsArguments& arguments, cudaStream_t stream);
void launch_pattern_kernel(const ScoreRowsArguments& arguments, cudaStream_t stream);

// Copies scores and patterns of out.rows to the host in blocks of rows, so that the GPU never has
// to hold the full (queries, keys) matrix.
void copy_scores_to_host(const RowScores& out, const QueriesAndKeys& source, ActiveRows& rows,
                         cudaStream_t stream);

}  // namespace qkscope::cuda
