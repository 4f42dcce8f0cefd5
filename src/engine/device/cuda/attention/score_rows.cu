#include <cmath>

#include "engine/device/cuda/attention/attention.h"
#include "engine/device/cuda/elements.cuh"

namespace qkscope::cuda {
namespace {

constexpr int kKeys = 128;    // columns of a block, one per thread
constexpr int kHeads = 4;     // query heads of a block, which share the keys that it loads
constexpr int kColumns = 64;  // head dimensions in shared memory at a time
constexpr int kSoftmaxThreads = 256;

struct OperandTiles {
  float q[kHeads][kColumns];
  float k[kKeys][kColumns + 1];  // odd pitch: the keys of a warp fall into different banks
};

// Operands of a thread block: one row of q for several heads, and several rows of k for one head.
template <typename T>
struct ScoreBlockOperands {
  const T* q;  // (heads, d_head)
  const T* k;  // (keys, d_head)
  std::int64_t k_stride;
  int heads, keys, d_head;
};

// Loads dimensions [from, from + kColumns) of a block's queries and keys; zeros past d_head.
template <typename T>
__device__ void load_operands(OperandTiles& memory, const ScoreBlockOperands<T>& source, int from) {
  for (int item = threadIdx.x; item < kHeads * kColumns; item += kKeys) {
    const int head = item / kColumns, column = item % kColumns;
    const bool valid = head < source.heads && from + column < source.d_head;
    const auto* q = source.q + head * source.d_head + from;
    memory.q[head][column] = valid ? to_float(q[column]) : 0.0f;
  }
  for (int item = threadIdx.x; item < kKeys * kColumns; item += kKeys) {
    const int key = item / kColumns, column = item % kColumns;
    const bool valid = key < source.keys && from + column < source.d_head;
    const auto* k = source.k + key * source.k_stride + from;
    memory.k[key][column] = valid ? to_float(k[column]) : 0.0f;
  }
}

// One block computes the scores of one query row and kKeys keys, for up to kHeads query heads of
// one key head. Grid: x runs over (row, columns), y over (key head, subset of its query heads).
template <typename T>
__global__ void __launch_bounds__(kKeys)
    scores_kernel(const ScoreRowsArguments a, int column_blocks, int head_parts) {
  __shared__ OperandTiles memory;
  const auto row = static_cast<std::int64_t>(blockIdx.x / column_blocks);
  const auto column = static_cast<std::int64_t>(blockIdx.x % column_blocks) * kKeys;
  const auto group = static_cast<int>(a.n_heads / a.n_kv_heads);
  const int kv_head = blockIdx.y / head_parts;
  const int part = static_cast<int>(blockIdx.y) % head_parts * kHeads;  // within the group
  const int heads = min(kHeads, group - part);
  const auto head = static_cast<std::int64_t>(kv_head) * group + part;
  const auto d_head = static_cast<int>(a.d_head);

  // Visible key columns [first, last] of a row, counted from the first column of the block.
  const auto base = a.sequence_begin[row] + column;
  const auto first = a.first_key[row] - base, last = a.last_key[row] - base;
  float scores[kHeads] = {};
  if (first < kKeys && last >= 0) {
    const ScoreBlockOperands<T> source = {
        .q = static_cast<const T*>(a.q) + a.rows[row] * a.row_stride + head * d_head,
        .k = static_cast<const T*>(a.k) + base * a.k_stride + kv_head * d_head,
        .k_stride = a.k_stride,
        .heads = heads,
        .keys = static_cast<int>(min(last + 1, std::int64_t{kKeys})),
        .d_head = d_head};
    for (int from = 0; from < d_head; from += kColumns) {
      load_operands(memory, source, from);
      __syncthreads();
#pragma unroll 16
      for (int i = 0; i < kColumns; ++i)
#pragma unroll
        for (int h = 0; h < kHeads; ++h)
          scores[h] = fmaf(memory.q[h][i], memory.k[threadIdx.x][i], scores[h]);
      __syncthreads();
    }
  }
  const auto thread = static_cast<std::int64_t>(threadIdx.x);
  if (column + thread >= a.keys) return;
  const bool seen = thread >= first && thread <= last;
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (h >= heads) continue;
    float score = scores[h] * a.scale;
    if (a.softcap > 0.0f) score = a.softcap * tanhf(score / a.softcap);
    a.scores[((head + h) * a.count + row) * a.keys + column + thread] = seen ? score : -INFINITY;
  }
}

// Block-wide reduction in a fixed order; every thread receives the result.
template <typename Combine>
__device__ float reduce_over_block(float value, Combine combine) {
  __shared__ float warps[kSoftmaxThreads / 32];
  for (int distance = 16; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  __syncthreads();  // the previous reduction has been read
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = warps[0];
  for (int i = 1; i < kSoftmaxThreads / 32; ++i) value = combine(value, warps[i]);
  return value;
}

__global__ void __launch_bounds__(kSoftmaxThreads) patterns_kernel(const ScoreRowsArguments a) {
  const auto index = static_cast<std::int64_t>(blockIdx.x);  // head * count + row
  const auto row = index % a.count;
  const float* scores = a.scores + index * a.keys;
  float* pattern = a.pattern + index * a.keys;
  const auto first = static_cast<std::int64_t>(a.first_key[row]) - a.sequence_begin[row];
  const auto last = static_cast<std::int64_t>(a.last_key[row]) - a.sequence_begin[row];
  // Each thread sums a fixed set of columns, so sums do not depend on the first visible key.
  const auto begin = first / kSoftmaxThreads * kSoftmaxThreads + threadIdx.x;

  float maximum = -INFINITY;
  for (auto column = begin; column <= last; column += kSoftmaxThreads)
    maximum = fmaxf(maximum, scores[column]);
  maximum = reduce_over_block(maximum, [](float x, float y) { return fmaxf(x, y); });
  const float sink = a.sinks == nullptr ? -INFINITY : a.sinks[index / a.count];
  maximum = fmaxf(maximum, sink);
  float sum = 0.0f;
  for (auto column = begin; column <= last; column += kSoftmaxThreads)
    sum += expf(scores[column] - maximum);
  sum = reduce_over_block(sum, [](float x, float y) { return x + y; });
  if (a.sinks != nullptr) sum += expf(sink - maximum);
  for (auto column = std::int64_t{threadIdx.x}; column < a.keys; column += kSoftmaxThreads)
    pattern[column] =
        column >= first && column <= last ? expf(scores[column] - maximum) / sum : 0.0f;
}

}  // namespace

void launch_score_kernel(const ScoreRowsArguments& a, cudaStream_t stream) {
  const auto column_blocks = (a.keys + kKeys - 1) / kKeys;
  const auto head_parts = (a.n_heads / a.n_kv_heads + kHeads - 1) / kHeads;
  const dim3 grid(static_cast<unsigned>(a.count * column_blocks),
                  static_cast<unsigned>(a.n_kv_heads * head_parts));
  dispatch_element_type(a.dtype, [&](auto type) {
    scores_kernel<decltype(type)><<<grid, kKeys, 0, stream>>>(a, static_cast<int>(column_blocks),
                                                              static_cast<int>(head_parts));
  });
  check_launch("attention scores");
}

void launch_pattern_kernel(const ScoreRowsArguments& a, cudaStream_t stream) {
  patterns_kernel<<<static_cast<unsigned>(a.n_heads * a.count), kSoftmaxThreads, 0, stream>>>(a);
  check_launch("attention patterns");
}

}  // namespace qkscope::cuda
