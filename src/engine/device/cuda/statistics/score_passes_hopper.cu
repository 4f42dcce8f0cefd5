// Scans of scores with wgmma (PTX ISA, section 9.7.15): a warpgroup asynchronously multiplies 64
// queries, held in registers, by a key tile, which is read from shared memory once for all four
// warps. The accumulator layout is that of mma.m16n8k16 (tensor_core.cuh).
#include <cstdint>
#include <type_traits>

#include "engine/device/cuda/cuda_devices.h"
#include "engine/device/cuda/statistics/all_keys.cuh"
#include "engine/device/cuda/statistics/near_keys.cuh"

namespace qkscope::cuda {
namespace {

constexpr int kGroupRows = 64;
constexpr int kSwizzledBytes = 128;  // bytes of a row of 64 channels

template <typename T, int kWidth>
struct HopperTileShape : LargeTileShape<T, kWidth> {
  static constexpr int kTileBytes = LargeTileShape<T, kWidth>::kKeys * kWidth * 2;
};

// Byte offset of 8 channels of a key in a key tile, which stores 64 channels of all keys, then the
// next 64, with the 128-byte swizzle that wgmma expects.
template <typename Shape>
__device__ int swizzled_offset(int row, int piece) {
  return piece / 8 * Shape::kKeys * kSwizzledBytes + row * kSwizzledBytes +
         ((piece % 8) ^ (row % 8)) * 16;
}

// wgmma matrix descriptor of 64 keys and 16 channels starting at `at`: rows of 128 bytes, groups of
// eight rows 1,024 bytes apart. To advance to other channels, add their byte offset / 16.
__device__ std::uint64_t wgmma_descriptor(std::uint32_t at) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = 1024 / 16;
  return kSwizzle128 | kEightRows << 32 | std::uint64_t{1} << 16 | (at & 0x3ffff) >> 4;
}

#define QKSCOPE_WGMMA(type)                                                                       \
  asm volatile(                                                                                   \
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n"                                          \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                 \
      " "                                                                                         \
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"   \
      "%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, adds, 1, 1, 0;\n}\n"             \
      : "+f"(c[0][0]), "+f"(c[0][1]), "+f"(c[0][2]), "+f"(c[0][3]), "+f"(c[1][0]), "+f"(c[1][1]), \
        "+f"(c[1][2]), "+f"(c[1][3]), "+f"(c[2][0]), "+f"(c[2][1]), "+f"(c[2][2]), "+f"(c[2][3]), \
        "+f"(c[3][0]), "+f"(c[3][1]), "+f"(c[3][2]), "+f"(c[3][3]), "+f"(c[4][0]), "+f"(c[4][1]), \
        "+f"(c[4][2]), "+f"(c[4][3]), "+f"(c[5][0]), "+f"(c[5][1]), "+f"(c[5][2]), "+f"(c[5][3]), \
        "+f"(c[6][0]), "+f"(c[6][1]), "+f"(c[6][2]), "+f"(c[6][3]), "+f"(c[7][0]), "+f"(c[7][1]), \
        "+f"(c[7][2]), "+f"(c[7][3])                                                              \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(keys), "r"(adds))

// wgmma over 16 channels: c (64 queries, 64 keys) = a kᵀ, or c += a kᵀ if `adds` is set.
template <typename T>
__device__ __forceinline__ void wgmma_multiply_add(float (&c)[8][4], const std::uint32_t (&a)[4],
                                                   std::uint64_t keys, int adds) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    QKSCOPE_WGMMA("bf16");
  else
    QKSCOPE_WGMMA("f16");
}

// The warp's 16 rows of q.
template <typename T, typename Shape>
class WarpgroupQueries {
 public:
  __device__ WarpgroupQueries(const GlobalHeadRows<T>& q, const ScoreThreadBlock& block) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = block.row + half * 8 + lane / 4;
      const auto* row =
          reinterpret_cast<const std::uint32_t*>(q.data + block.batch_row(position) * q.stride);
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
#pragma unroll
        for (int part = 0; part < 2; ++part)
          held_[step][2 * part + half] =
              position < block.end ? row[step * 8 + part * 4 + lane % 4] : 0;
    }
  }

  // Computes the scores q.k of the warpgroup's queries and a tile of keys; called by all four
  // warps.
  __device__ __forceinline__ void multiply_by_keys(ScoreFragments<Shape>& scores,
                                                   std::uint32_t tile) const {
    const auto keys = wgmma_descriptor(tile);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int at = step / 4 * Shape::kKeys * kSwizzledBytes + step % 4 * 32;
      wgmma_multiply_add<T>(scores[0], held_[step], keys + at / 16, step > 0);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    // Compiler barrier, so that the scores are not read before wgmma has completed.
#pragma unroll
    for (auto& fragment : scores[0])
#pragma unroll
      for (float& score : fragment) asm volatile("" : "+f"(score)::"memory");
  }

 private:
  static constexpr int kSteps = Shape::kWidth / 16;
  std::uint32_t held_[kSteps][4];
};

// Loads key tiles into swizzled shared memory. A thread always loads the same channels, of every
// kRows-th row.
template <typename T, typename Shape>
class KeyTileLoader {
 public:
  __device__ KeyTileLoader(const GlobalHeadRows<T>& k, const ScoreThreadBlock& block)
      : row_(static_cast<int>(threadIdx.x) / kPieces),
        end_(block.end),
        stride_(k.stride),
        from_(k.data + block.batch_row(row_) * k.stride + threadIdx.x % kPieces * 8),
        to_(swizzled_offset<Shape>(row_, static_cast<int>(threadIdx.x) % kPieces)) {}

  __device__ void load(std::uint32_t tile, int key) const {
    const T* from = from_ + key * stride_;
    const int left = end_ - key - row_;
#pragma unroll
    for (int row = 0; row < Shape::kKeys; row += kRows, from += kRows * stride_)
      copy_async(tile + to_ + row * kSwizzledBytes, row < left ? from : from_, row < left);
  }

 private:
  static constexpr int kPieces = Shape::kWidth / 8;
  static constexpr int kRows = Shape::kThreads / kPieces;
  static_assert(kRows % 8 == 0);  // so that the swizzle is the same for all rows of a thread

  int row_, end_;
  std::int64_t stride_;
  const T* from_;
  int to_;
};

template <typename T, typename Shape, typename Pass>
struct HopperSharedMemory {
  alignas(1024) char tiles[2][Shape::kTileBytes];
  typename Pass::SharedStorage pass;
};

// Two blocks per multiprocessor: one processes scores while the other computes them.
template <typename T, typename Shape, typename Pass>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    hopper_score_kernel(const ScoreArguments a, const typename Pass::Options options) {
  extern __shared__ __align__(1024) char shared[];
  auto& memory = *reinterpret_cast<HopperSharedMemory<T, Shape, Pass>*>(shared);
  const auto block = this_score_block<Shape>(a);
  const int group_end = block.tile.first + (static_cast<int>(threadIdx.x) / 128 + 1) * kGroupRows;
  const int kv_head = block.head / static_cast<int>(a.n_heads / a.n_kv_heads);
  const WarpgroupQueries<T, Shape> queries(global_head_rows<T>(a, a.q, block.head), block);
  const KeyTileLoader<T, Shape> keys(global_head_rows<T>(a, a.k, kv_head), block);
  Pass pass(a, options, block, memory.pass);

  int key = pass.first_key();
  auto now = shared_address(memory.tiles[0]), later = shared_address(memory.tiles[1]);
  keys.load(now, key);
  while (key < block.end) {
    const int next = pass.first_key_of_next_tile(key);
    wait_for_copies();
    asm volatile("fence.proxy.async.shared::cta;" ::
                     : "memory");  // makes the writes visible to wgmma
    __syncthreads();  // keys have arrived, and every warp is done with the previous ones
    if (next < block.end) keys.load(later, next);
    pass.begin_tile();
    ScoreFragments<Shape> scores;
    if (key < group_end) queries.multiply_by_keys(scores, now);  // else the whole tile is masked
    if (key < block.row + Shape::kWarpRows) {
      apply_score_soft_cap<Shape>(scores, a);
      pass.add_tile(scores, key);
    } else {
      pass.skip_tile(key);
    }
    const auto free = now;
    now = later;
    later = free;
    key = next;
  }
  pass.store_statistics();
}

template <template <typename, typename> typename Pass, typename Options>
bool launch_pass_on_hopper(const ScoreArguments& a, const Options& options, cudaStream_t stream) {
  int device = 0;
  check(cudaGetDevice(&device), "which GPU");
  if (!is_hopper(device) || a.dtype == DType::f32 || (a.d_head != 64 && a.d_head != 128) ||
      !a.vectors)
    return false;
  dispatch_16bit_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    dispatch_width<64, 128>(a.d_head, [&](auto width) {
      using Shape = HopperTileShape<T, width>;
      using ThisPass = Pass<T, Shape>;
      launch_with_shared_memory("statistics of scores", hopper_score_kernel<T, Shape, ThisPass>,
                                a.tile_count * a.tile_heads, Shape::kThreads,
                                sizeof(HopperSharedMemory<T, Shape, ThisPass>), stream, a, options);
    });
  });
  return true;
}

}  // namespace

bool try_compute_near_key_statistics_on_hopper(const ScoreArguments& a,
                                               const NearKeyOptions& options, cudaStream_t stream) {
  return launch_pass_on_hopper<NearKeyPass>(a, options, stream);
}

bool try_compute_all_key_statistics_on_hopper(const ScoreArguments& a, const AllKeysArguments& more,
                                              cudaStream_t stream) {
  return launch_pass_on_hopper<AllKeysPass>(a, more, stream);
}

}  // namespace qkscope::cuda
