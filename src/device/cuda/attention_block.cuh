// How the attention kernels share out their work: a block takes kRows queries of one head.
#pragma once

#include "device/cuda/attention_kernel.h"
#include "device/cuda/key_tiles.cuh"
#include "device/cuda/status.h"

namespace qkscope::cuda {

struct AttentionBlock {
  std::int64_t head, kv_head;
  std::int64_t query;  // the first
  int queries;
};

// Heads of the same queries run at the same time and meet the same keys in the cache; the last
// queries, which see most, come first, so that no long block is left over at the end.
template <int kRows>
__device__ AttentionBlock this_block(const AttentionArguments& a) {
  const auto head = static_cast<std::int64_t>(blockIdx.x) % a.n_heads;
  const auto query = (gridDim.x - 1 - blockIdx.x) / a.n_heads * kRows;
  return {head, head / (a.n_heads / a.n_kv_heads), query,
          static_cast<int>(min(a.queries - query, std::int64_t{kRows}))};
}

// Fills `ranges` for the queries from `query` on and ends with a barrier. Rows past the last query
// repeat it, so that they ask for no tile of their own.
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
  const auto origin = least_of_rows<kRows>([&](int row) { return ranges.first[row]; });
  for (int row = threadIdx.x; row < kRows; row += blockDim.x) ranges.sequence[row] = origin;
  __syncthreads();
}

// Runs `kernel`, which takes the arguments and the scale of exponents of 2.
template <typename Shape, typename Kernel>
void launch_blocks(Kernel kernel, int shared_bytes, const AttentionArguments& a,
                   cudaStream_t stream) {
  constexpr float kLog2E = 1.44269504088896340736f;
  const auto blocks = (a.queries + Shape::kRows - 1) / Shape::kRows * a.n_heads;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
        "attention: shared memory");
  kernel<<<static_cast<unsigned>(blocks), Shape::kThreads, shared_bytes, stream>>>(
      a, a.scale * kLog2E);
  check(cudaGetLastError(), "attention");
}

}  // namespace qkscope::cuda
