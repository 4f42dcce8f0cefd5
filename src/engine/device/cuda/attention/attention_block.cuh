// Work distribution of the attention kernels: each block processes kRows queries of one head and
// loops over the key tiles that they attend to.
#pragma once

#include <cstdint>

#include "engine/device/cuda/attention/attention.h"
#include "engine/device/cuda/elements.cuh"

namespace qkscope::cuda {

constexpr std::int32_t kNoKey = 0x7fffffff;

// A tile of keys, rows [begin, end), which may be shorter than a full tile.
struct KeyTile {
  std::int32_t begin, end;
  __device__ bool is_valid() const { return begin != kNoKey; }
};

// Visible keys of each query of a thread block, in shared memory.
template <int kRows>
struct KeyRanges {
  std::int32_t first[kRows];     // first visible key
  std::int32_t last[kRows];      // last visible key
  std::int32_t sequence[kRows];  // origin of the query's key tiles
};

// Returns the minimum of value(row) over the rows of the block, in every lane of the warp.
template <int kRows, typename Value>
__device__ std::int32_t min_over_rows(Value value) {
  std::int32_t least = kNoKey;
#pragma unroll
  for (int row = threadIdx.x % 32; row < kRows; row += 32) least = min(least, value(row));
  return __reduce_min_sync(kAllLanes, least);
}

// Iterates over the tiles of kKeys keys that at least one query of the block attends to, in
// ascending order. Every warp iterates on its own and finds the same tiles. Tiles start at
// multiples of kKeys from the start of a sequence and never cross into the next one, so the tiling
// of a query's keys does not depend on the rest of the batch.
template <int kRows, int kKeys>
class KeyTileIterator {
  static_assert((kKeys & (kKeys - 1)) == 0);

 public:
  // Constructs the iterator; a barrier must separate it from the last write to `ranges`.
  __device__ explicit KeyTileIterator(const KeyRanges<kRows>& ranges)
      : ranges_(ranges),
        end_(1 - min_over_rows<kRows>([&](int row) { return -ranges.last[row]; })) {}

  // Returns the first tile with keys at or after `from`.
  __device__ KeyTile next(std::int32_t from) const {
    const auto begin = min_over_rows<kRows>([&](int row) {
      if (ranges_.last[row] < from) return kNoKey;
      const auto key = max(ranges_.first[row], from);
      return max(key - ((key - ranges_.sequence[row]) & (kKeys - 1)), from);
    });
    if (begin == kNoKey) return {kNoKey, kNoKey};
    const auto cut = min_over_rows<kRows>(
        [&](int row) { return ranges_.sequence[row] > begin ? ranges_.sequence[row] : kNoKey; });
    return {begin, min(min(begin + kKeys, cut), end_)};
  }

 private:
  const KeyRanges<kRows>& ranges_;
  std::int32_t end_;  // one past the last key visible to any query
};

struct AttentionThreadBlock {
  std::int64_t head, kv_head;
  std::int64_t query;  // first query of the block
  int queries;
  int slice;  // part of the columns of v that the block computes
};

// Blocks for the same queries (all heads, all slices of v) run concurrently and share cached keys.
// The last queries, which have the most keys, run first, so that no long block is left at the end.
template <int kRows, int kSlices = 1>
__device__ AttentionThreadBlock this_attention_block(const AttentionArguments& a) {
  const auto number = static_cast<std::int64_t>(blockIdx.x) % (a.n_heads * kSlices);
  const auto head = number / kSlices;
  const auto query = (gridDim.x - 1 - blockIdx.x) / (a.n_heads * kSlices) * kRows;
  return {head, head / (a.n_heads / a.n_kv_heads), query,
          static_cast<int>(min(a.queries - query, std::int64_t{kRows})),
          static_cast<int>(number % kSlices)};
}

// Fills `ranges` for kRows queries starting at `query` and ends with a barrier. Rows past the last
// query get the range of the last query, so that they add no key tiles.
template <int kRows>
__device__ void load_key_ranges(KeyRanges<kRows>& ranges, const AttentionArguments& a,
                                std::int64_t query) {
  for (int row = threadIdx.x; row < kRows; row += blockDim.x) {
    const auto from = min(query + row, a.queries - 1);
    ranges.first[row] = a.first_key[from];
    ranges.last[row] = a.last_key[from];
    if (a.sequence_begin != nullptr) ranges.sequence[row] = a.sequence_begin[from];
  }
  __syncthreads();
  if (a.sequence_begin != nullptr) return;
  const auto origin = min_over_rows<kRows>([&](int row) { return ranges.first[row]; });
  for (int row = threadIdx.x; row < kRows; row += blockDim.x) ranges.sequence[row] = origin;
  __syncthreads();
}

// Launches an attention kernel. The score scale is multiplied by log2(e): kernels use exp2.
template <typename Shape, typename Kernel>
void launch_attention_blocks(Kernel kernel, int shared_bytes, const AttentionArguments& a,
                             cudaStream_t stream) {
  const auto blocks = (a.queries + Shape::kRows - 1) / Shape::kRows * a.n_heads * Shape::kSlices;
  launch_with_shared_memory("attention", kernel, blocks, Shape::kThreads, shared_bytes, stream, a,
                            a.scale * kLog2E);
}

}  // namespace qkscope::cuda
