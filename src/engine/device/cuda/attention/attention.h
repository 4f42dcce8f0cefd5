// Softmax attention for head sizes up to 512 and every mask that gives each query one contiguous
// range of keys: causal, sliding window, packed sequences, and any of them for a subset of the
// queries. attention.cpp checks arguments and dispatches; each element type has its own file
// (attention_bf16.cu, attention_f16.cu, attention_f32.cu) so that they compile in parallel.
// choose_attention_kernel() selects this kernel or those of FlashInfer and cuDNN.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <cuda_runtime.h>

#include "engine/device/cuda/hopper_kernels.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"

namespace qkscope {
struct AttentionScores;
}

namespace qkscope::cuda {

class ActiveRows;

// Softmax statistics of each row of attention scores, (rows, n_heads) on the GPU or null.
struct SoftmaxRowStats {
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
  std::int64_t chunk = 0;        // chunk length: queries see only keys of their chunk; 0: no chunks
  DType dtype = DType::bf16;     // type of q and k: bf16, f16 or f32
  const float* sinks = nullptr;  // (n_heads) extra score in each softmax, or null
};

// All pointers are device pointers. The heads of a row are contiguous; strides are in elements. Any
// stride and alignment works; 16-byte aligned rows are the fast path. first_key and
// last_key replace window and chunk, and sinks are not applied.
struct AttentionArguments : QueriesAndKeys {
  const void* v = nullptr;  // (rows, n_kv_heads, d_value)
  void* z = nullptr;        // (queries, n_heads, d_value)
  std::int64_t v_stride = 0, z_stride = 0;
  const std::int32_t* first_key = nullptr;  // (queries) first visible row of k
  const std::int32_t* last_key = nullptr;   // (queries) last visible row of k, >= first_key
  // Shape (queries), or null: row of k where the query's sequence begins, <= first_key. Key tiles
  // start at this row; see compute_attention() below.
  const std::int32_t* sequence_begin = nullptr;
  std::int64_t queries = 0;        // rows of q
  std::int64_t d_value = d_head;   // width of a head of v and z
  SoftmaxRowStats row_stats = {};  // (queries, n_heads) or null
};

// z = softmax(scale q kᵀ, capped and masked) v, as flash attention: key tiles with an online
// softmax. Scores and sums are float32; with 16-bit types the weights are rounded to the element
// type for the product with v. Queries should be in ascending order, because a block of consecutive
// queries reads every tile that one of them attends to.
//
// The result is deterministic. Rounding depends on where the key tiles of a query start. With
// sequence_begin, tiles start at the query's sequence, so a row is bit-identical for any position
// of the sequence in the batch and for any other queries. Without sequence_begin, tiles start at
// the first key visible to any query of the block: for causal attention this is the start of the
// sequence, unless a block spans two sequences; with a sliding window it depends on the queries.
void compute_attention(const AttentionArguments& arguments, cudaStream_t stream);

// Attention kernels; T is __nv_bfloat16 or __half. The caller checks the arguments; queries > 0.
template <typename T>
void compute_attention_16bit(const AttentionArguments& arguments, cudaStream_t stream);
void compute_attention_f32(const AttentionArguments& arguments, cudaStream_t stream);

enum class AttentionKernel : std::uint8_t { flash_infer, cudnn, own };

struct AttentionKernelCriteria {
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

// Returns FlashInfer's kernel on Hopper if it has an instance for the head size, cuDNN's on other
// GPUs and for other head sizes, and the built-in kernel for everything else. The choice depends
// only on GPU and model. The built-in kernel also replaces cuDNN for shapes without a cuDNN kernel.
AttentionKernel choose_attention_kernel(const AttentionKernelCriteria& attention,
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
// and the column (key), so the results of a row are bit-identical wherever it is in the batch.
void compute_selected_scores(const ScoreRowsArguments& arguments, cudaStream_t stream);

// Launch functions of the score kernels. The caller has checked the arguments; count and keys > 0.
void launch_score_kernel(const ScoreRowsArguments& arguments, cudaStream_t stream);
void launch_pattern_kernel(const ScoreRowsArguments& arguments, cudaStream_t stream);

// Computes scores and patterns of out.rows for the host, in blocks of rows that fit on the GPU.
void compute_and_copy_scores(const AttentionScores& out, const QueriesAndKeys& source,
                             ActiveRows& rows, cudaStream_t stream);

// A range of query rows of one head: one work item of the persistent kernel.
struct AttentionTile {
  std::int32_t begin;   // first row of the sequence
  std::int32_t length;  // rows of the sequence
  std::int32_t tile;    // tile index within the sequence
  std::int32_t head;    // query head
};

struct AttentionTiling {
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t d_head = 0;
  std::int64_t rows = 0;  // query rows of a tile
};

// Lists every tile once. Key heads whose keys and values fit into L2 together are scheduled
// together, query heads that share a key head are adjacent, and long tiles precede short ones, so
// that all multiprocessors finish at about the same time.
std::vector<AttentionTile> schedule_attention_tiles(std::span<const Sequence> sequences,
                                                    const AttentionTiling& shape);

class HopperAttention {
 public:
  HopperAttention(const ModelConfig& model, DType dtype, int device, cudaStream_t stream);

  // Returns whether a kernel exists for the GPU, the model's head size and the type.
  bool has_kernel() const { return serves_; }

  // Sets the sequences of the pass. Each sequence occupies consecutive rows.
  void set_sequences(std::span<const Sequence> sequences);

  // Causal attention with sliding window a.window. Each input row holds q, k and v; z is dense.
  void attend(const AttentionArguments& a);

 private:
  const ModelConfig& model_;
  DType dtype_;
  cudaStream_t stream_;
  int multiprocessors_ = 0;
  HopperHeadShape head_;
  bool serves_ = false;
  std::int64_t rows_ = 0;
  std::int64_t longest_ = 0;
  int tile_count_ = 0;
  UploadBuffer tiles_;    // AttentionTile
  DeviceMemory counter_;  // int
};

// Attention with cuDNN; cudnn_attention_absent.cpp is the stub for builds without cuDNN.
class CudnnAttention {
 public:
  // Starts cuDNN on a background thread, because start-up takes half a second.
  CudnnAttention(const ModelConfig& model, DType dtype, int device, cudaStream_t stream);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  // Sets the sequences of the pass. Each sequence occupies consecutive rows.
  void set_sequences(std::span<const Sequence> sequences);

  // Returns false, without doing anything, if cuDNN has no kernel for the arguments. Ignores
  // a.scale, because cuDNN plans contain the model's score scale. Does not write a.row_stats.
  bool try_attend(const AttentionArguments& a);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qkscope::cuda
