// Which tiles of keys a block of queries reads.
#pragma once

#include <cstdint>

#include "device/cuda/warp.cuh"

namespace qkscope::cuda {

constexpr std::int32_t kNoKey = 0x7fffffff;

// Key rows [begin, end), at most one tile's worth.
struct KeyTile {
  std::int32_t begin, end;
  __device__ bool exists() const { return begin != kNoKey; }
};

// The ranges of a block's queries, in shared memory.
template <int kRows>
struct KeyRanges {
  std::int32_t first[kRows];     // first key that the query sees
  std::int32_t last[kRows];      // last key that it sees
  std::int32_t sequence[kRows];  // where its tiles are counted from
};

// For `value(row)` of every row of a block: the least. All lanes of the warp get it.
template <int kRows, typename Value>
__device__ std::int32_t least_of_rows(Value value) {
  std::int32_t least = kNoKey;
#pragma unroll
  for (int row = threadIdx.x % 32; row < kRows; row += 32) least = min(least, value(row));
  return __reduce_min_sync(kAllLanes, least);
}

// Walks the tiles of kKeys keys that at least one query of the block sees, in ascending order. Each
// warp walks by itself and finds the same tiles. Tiles begin at a multiple of kKeys from the begin
// of a query's sequence, and none reaches into the next sequence: what a query sees is cut into the
// same tiles whatever stands next to it.
template <int kRows, int kKeys>
class KeyTileWalk {
  static_assert((kKeys & (kKeys - 1)) == 0);

 public:
  // Needs a barrier after the last write to `ranges`.
  __device__ explicit KeyTileWalk(const KeyRanges<kRows>& ranges)
      : ranges_(ranges),
        end_(1 - least_of_rows<kRows>([&](int row) { return -ranges.last[row]; })) {}

  // The first tile with keys at or after `from`.
  __device__ KeyTile next(std::int32_t from) const {
    const auto begin = least_of_rows<kRows>([&](int row) {
      if (ranges_.last[row] < from) return kNoKey;
      const auto key = max(ranges_.first[row], from);
      return max(key - ((key - ranges_.sequence[row]) & (kKeys - 1)), from);
    });
    if (begin == kNoKey) return {kNoKey, kNoKey};
    const auto cut = least_of_rows<kRows>(
        [&](int row) { return ranges_.sequence[row] > begin ? ranges_.sequence[row] : kNoKey; });
    return {begin, min(min(begin + kKeys, cut), end_)};
  }

 private:
  const KeyRanges<kRows>& ranges_;
  std::int32_t end_;  // one past the last key that any query sees
};

}  // namespace qkscope::cuda
