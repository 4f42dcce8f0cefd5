// Warp-level matrix instructions (mma, ldmatrix, cp.async; sm_80 and later) for bfloat16 and
// float16, and shared-memory tiles of 16-bit rows of one head. Fragment layouts as in the PTX ISA
// for mma.m16n8k16, with g = lane / 4 and t = lane % 4:
//    A (16 x 16): a[0] (g, 2t..2t+1), a[1] (g+8, same), a[2] (g, 2t+8..), a[3] (g+8, 2t+8..)
//    B (16 x 8):  b[0] (2t..2t+1, g), b[1] (2t+8.., g)
//    C (16 x 8):  c[0..1] (g, 2t..2t+1), c[2..3] (g+8, same)
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace qkscope::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const char* tile) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(tile));
}

// Matrix multiply-accumulate: c += a b.
template <typename T>
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
#define QKSCOPE_MMA(type)                                                   \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type       \
               ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    QKSCOPE_MMA("bf16");
  else
    QKSCOPE_MMA("f16");
#undef QKSCOPE_MMA
}

// ldmatrix: loads four 8 x 8 matrices. Lanes 8i to 8i+7 pass the row addresses of matrix i; r[i]
// receives elements (lane / 4, 2 (lane % 4)..) of matrix i or of its transpose.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// cp.async: copies 16 bytes from global to shared memory asynchronously; zeros if not `valid`.
__device__ __forceinline__ void copy_async(std::uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}

__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// commit_copy_group() commits the current group of asynchronous copies;
// wait_for_older_copy_groups() waits until at most kGroups groups are pending.
__device__ __forceinline__ void commit_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kGroups>
__device__ __forceinline__ void wait_for_older_copy_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Packs two values rounded to T into 32 bits, the first in the low half.
template <typename T>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high) {
  const auto pack = [&] {
    if constexpr (std::is_same_v<T, __nv_bfloat16>)
      return __floats2bfloat162_rn(low, high);
    else
      return __floats2half2_rn(low, high);
  };
  const auto pair = pack();
  return reinterpret_cast<const std::uint32_t&>(pair);
}

// Hardware approximation of 2^x; 0 at -infinity and exactly 1 at 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Approximate square root: relative error at most 2^-23; 0 for arguments below 2^-126.
__device__ __forceinline__ float sqrt_fast(float x) {
  float result;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Row pitch in shared memory: kWidth elements plus 16 bytes of padding, an odd number of 16-byte
// units, so that eight rows of one column fall into different banks.
template <int kWidth>
constexpr int kPitch = kWidth * 2 + 16;  // bytes

// Rows of one head in global memory. 16-bit elements are moved as raw bits. With kVectors,
// every row is 16-byte aligned and a multiple of 16 bytes long.
template <typename Bits, bool kVectors>
struct HeadRows {
  Bits* data;           // row 0
  std::int64_t stride;  // elements
  int d_head;
};

// Loads up to 8 elements from `source` and fills the rest with zeros.
__device__ inline uint4 load_zero_padded(const std::uint16_t* source, int count) {
  std::uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = 2 * i < count ? source[2 * i] : 0u;
    if (2 * i + 1 < count) words[i] |= static_cast<std::uint32_t>(source[2 * i + 1]) << 16;
  }
  return {words[0], words[1], words[2], words[3]};
}

// Loads rows [begin, begin + count) of `source` into the tile; other rows and columns past d_head
// become zero. Must be called by all threads of a block; valid after wait_for_copies and a barrier.
template <int kRows, int kWidth, int kThreads, bool kVectors>
__device__ __forceinline__ void load_tile_rows(
    char* tile, const HeadRows<const std::uint16_t, kVectors>& source, std::int64_t begin,
    int count) {
  constexpr int kChunks = kWidth / 8;                  // 16-byte chunks of a row
  constexpr int kLanes = std::bit_ceil(kChunks * 1u);  // threads that share a row
  constexpr int kStep = kThreads / kLanes;             // rows loaded at once
  static_assert(kRows % kStep == 0);
  const int column = static_cast<int>(threadIdx.x) % kLanes * 8;
  const int first = static_cast<int>(threadIdx.x) / kLanes;
  if (kChunks < kLanes && column >= kWidth) return;
  const bool inside = column < source.d_head;
  const auto* from = source.data + (begin + first) * source.stride + column;
  tile += first * kPitch<kWidth> + column * 2;
  const auto address = shared_address(tile);
#pragma unroll
  for (int row = 0; row < kRows; row += kStep, from += kStep * source.stride) {
    const bool valid = inside && first + row < count;  // otherwise `from` is not read
    if constexpr (kVectors)
      copy_async(address + row * kPitch<kWidth>, from, valid);
    else
      *reinterpret_cast<uint4*>(tile + row * kPitch<kWidth>) =
          load_zero_padded(from, valid ? source.d_head - column : 0);
  }
}

// Stores `count` rows of a warp's part of a tile to rows [begin, begin + count) of `target`.
template <int kRows, int kWidth, bool kVectors>
__device__ void store_tile_rows(const char* tile, const HeadRows<std::uint16_t, kVectors>& target,
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
