// Tiles of 16-bit vectors of one head, between global and shared memory.
#pragma once

#include <bit>
#include <cstdint>

#include "device/cuda/tensor_core.cuh"

namespace qkscope::cuda {

// A row of kWidth elements in shared memory takes 16 bytes more than it needs: an odd number of
// 16-byte units, so that eight rows of one column lie in different banks.
template <int kWidth>
constexpr int kPitch = kWidth * 2 + 16;  // bytes

// The rows of one head in global memory. 16-bit elements are moved as bits, whatever their type.
// With kVectors every row begins at a multiple of 16 bytes and is one long.
template <typename Bits, bool kVectors>
struct HeadRows {
  Bits* data;           // row 0
  std::int64_t stride;  // elements
  int d_head;
};

// Up to 8 elements from `source`, the rest zero.
__device__ inline uint4 gather_elements(const std::uint16_t* source, int count) {
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = 2 * i < count ? source[2 * i] : 0u;
    if (2 * i + 1 < count) words[i] |= static_cast<std::uint32_t>(source[2 * i + 1]) << 16;
  }
  return {words[0], words[1], words[2], words[3]};
}

// Rows [begin, begin + count) of `source` into the tile, zeros in its other rows and past d_head.
// All threads of the block take part; what they bring is there after wait_for_copies and a barrier.
template <int kRows, int kWidth, int kThreads, bool kVectors>
__device__ __forceinline__ void load_rows(char* tile,
                                          const HeadRows<const std::uint16_t, kVectors>& source,
                                          std::int64_t begin, int count) {
  constexpr int kChunks = kWidth / 8;                  // of 16 bytes
  constexpr int kLanes = std::bit_ceil(kChunks * 1u);  // threads that share a row
  constexpr int kStep = kThreads / kLanes;             // rows that are loaded at once
  static_assert(kRows % kStep == 0);
  const int column = static_cast<int>(threadIdx.x) % kLanes * 8;
  const int first = static_cast<int>(threadIdx.x) / kLanes;
  if (kChunks < kLanes && column >= kWidth) return;
  const bool inside = column < source.d_head;
  const auto* from = source.data + (begin + first) * source.stride + column;
  tile += first * kPitch<kWidth> + column * 2;
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(tile));
#pragma unroll
  for (int row = 0; row < kRows; row += kStep, from += kStep * source.stride) {
    const bool valid = inside && first + row < count;  // else `from` is not read
    if constexpr (kVectors)
      copy_async(address + row * kPitch<kWidth>, from, valid);
    else
      *reinterpret_cast<uint4*>(tile + row * kPitch<kWidth>) =
          gather_elements(from, valid ? source.d_head - column : 0);
  }
}

// The first `count` rows of a warp's part of a tile to rows [begin, begin + count) of `target`.
template <int kRows, int kWidth, bool kVectors>
__device__ void store_rows(const char* tile, const HeadRows<std::uint16_t, kVectors>& target,
                           std::int64_t begin, int count) {
  constexpr int kChunks = kWidth / 8;
  for (int item = threadIdx.x % 32; item < kRows * kChunks; item += 32) {
    const int row = item / kChunks, column = item % kChunks * 8;
    if (row >= count || column >= target.d_head) continue;
    const char* from = tile + row * kPitch<kWidth> + column * 2;
    auto* to = target.data + (begin + row) * target.stride + column;
    if constexpr (kVectors)
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    else
      for (int i = 0; i < min(8, target.d_head - column); ++i)
        to[i] = reinterpret_cast<const std::uint16_t*>(from)[i];
  }
}

}  // namespace qkscope::cuda
