// Moments of bfloat16 and float16 rows. A block streams the chunks of its segment through shared
// memory, 128 rows at a time, and processes each tile twice: per channel and row (power sums,
// ranges, norms) and on the tensor cores (Gram matrix, covariances with position). Two blocks share
// a multiprocessor.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/statistics/moment_channels.cuh"
#include "engine/device/cuda/statistics/moment_products.cuh"
#include "engine/device/cuda/statistics/statistics_moments.h"
#include "engine/device/cuda/tensor_core.cuh"

namespace qkscope::cuda {
namespace {

// Clears the sums in shared memory, which are stored in front of the tiles.
template <typename Tile>
__device__ __forceinline__ void clear(MomentSharedMemory<Tile>& memory) {
  auto* words = reinterpret_cast<uint4*>(&memory);
  constexpr auto kWords = offsetof(MomentSharedMemory<Tile>, loaded) / sizeof(uint4);
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < kWords; i += Tile::kThreads) words[i] = {};
}

// Streams the tiles of a segment into shared memory; kStages - 1 tiles are loaded ahead.
template <typename T, typename Tile>
class TileStream {
 public:
  __device__ TileStream(MomentSharedMemory<Tile>& memory, const MomentArguments& a, int head,
                        MomentSegment segment)
      : memory_(memory),
        rows_{static_cast<const std::uint16_t*>(a.x) + head * a.record.dim, a.row_stride,
              static_cast<int>(a.record.dim)},
        ahead_(a.chunks, segment) {
    for (int stage = 0; stage < Tile::kStages - 1; ++stage) load_ahead(stage);
  }

  // Waits until all warps have finished the previous tile and the next tile has arrived, starts to
  // load a later tile, and returns the stage of the next tile.
  __device__ int next() {
    wait_for_older_copy_groups<Tile::kStages - 2>();
    __syncthreads();
    load_ahead((stage_ + Tile::kStages - 1) % Tile::kStages);
    const int arrived = stage_;
    stage_ = (stage_ + 1) % Tile::kStages;
    return arrived;
  }

 private:
  __device__ void load_ahead(int stage) {
    if (threadIdx.x == 0)
      memory_.loaded[stage] = {ahead_.has_tile() ? ahead_.rows() : 0, ahead_.chunk.position,
                               ahead_.index, ahead_.ends_chunk()};
    if (ahead_.has_tile()) {
      load_tile_rows<Tile::kRows, Tile::kWidth, Tile::kThreads>(
          memory_.tiles[stage], rows_, ahead_.chunk.row + ahead_.offset, ahead_.rows());
      if (threadIdx.x < Tile::kRows) memory_.positions[stage][threadIdx.x] = position_columns();
      ahead_.next();
    }
    commit_copy_group();  // an empty group counts too: wait_for_older_copy_groups counts groups
  }

  // Returns this thread's row of MomentSharedMemory::positions; zeros beyond the end of the chunk.
  __device__ uint4 position_columns() const {
    const int row = threadIdx.x;
    if (row >= ahead_.rows()) return {};
    const int t = ahead_.offset + row;
    const float u = log2f(static_cast<float>(ahead_.chunk.position + t + 1)) -
                    log2_of_position(ahead_.chunk.position);
    const float high = round_to_type<T>(u), middle = round_to_type<T>(u - high);
    return {pack_pair<T>(1.0f, static_cast<float>(t)), pack_pair<T>(high, middle),
            pack_pair<T>(u - high - middle, 0.0f), 0};
  }

  MomentSharedMemory<Tile>& memory_;
  HeadRows<const std::uint16_t, true> rows_;
  MomentTileIterator<Tile> ahead_;
  int stage_ = 0;
};

template <typename T, typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, 512 / Tile::kThreads)
    moments_kernel(const MomentArguments a) {
  extern __shared__ __align__(16) char shared[];
  auto& memory = *reinterpret_cast<MomentSharedMemory<Tile>*>(shared);
  const auto heads = static_cast<int>(a.heads), dim = static_cast<int>(a.record.dim);
  const int head = static_cast<int>(blockIdx.x) % heads;
  const auto segment = a.segments[static_cast<int>(blockIdx.x) / heads];
  const auto at = static_cast<std::int64_t>(blockIdx.x);
  float* fragments = a.fragments + at * GramFragments{Tile::kBlocks}.size();
  GramMatrix<T, Tile> products;
  if (has_few_rows(a.chunks[segment.begin])) return products.store(fragments);
  clear(memory);
  const float* shift = a.shift.product + head * dim;
  const bool shifted = __syncthreads_or(threadIdx.x < dim && shift[threadIdx.x] != 0.0f);
  TileStream<T, Tile> tiles(memory, a, head, segment);
  ChannelMoments<T, Tile> channels(memory, a, head);
  // Half of the warps multiply first while the others sum channels, so that the two overlap.
  const bool products_first = !shifted && threadIdx.x < Tile::kThreads / 2;
  for (int stage = tiles.next(); memory.loaded[stage].rows > 0; stage = tiles.next()) {
    const auto& loaded = memory.loaded[stage];
    char* tile = memory.tiles[stage];
#pragma unroll 1
    for (int phase = 0; phase < 2; ++phase) {
      if ((phase == 0) == products_first) {
        products.add(tile, memory.positions[stage]);
        continue;
      }
      channels.add(memory, tile, loaded.rows);
      if (!shifted) continue;
      __syncthreads();
      channels.subtract_shift(tile, loaded.rows, shift);
      __syncthreads();
    }
    if (!loaded.ends_chunk) continue;
    channels.report_non_finite(a, static_cast<int>(loaded.chunk * a.heads + head));
    products.finish_chunk(memory, loaded.position);
  }
  products.store(fragments);
  channels.store(memory, a, a.records + at * a.record.size());
}

}  // namespace

bool can_use_tensor_cores(const ActivationView& x, const MomentShape& shape) {
  return (x.dtype == DType::bf16 || (x.dtype == DType::f16 && !shape.bucket_covariance)) &&
         shape.dim <= 128 && shape.dim % 8 == 0 && x.row_stride % 8 == 0 &&
         is_16_byte_aligned(x.data) &&
         sizeof(MomentSharedMemory<MomentTile<128>>) <= max_shared_memory_bytes();
}

GramFragments choose_gram_fragments(std::int64_t dim) {
  return {dim <= 64 ? MomentTile<64>::kBlocks : MomentTile<128>::kBlocks};
}

void sum_moments_16bit(const MomentArguments& a, cudaStream_t stream) {
  dispatch_16bit_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    dispatch_width<64, 128>(a.record.dim, [&](auto width) {
      using Tile = MomentTile<width>;
      launch_with_shared_memory("moments", moments_kernel<T, Tile>, a.segment_count * a.heads,
                                Tile::kThreads, sizeof(MomentSharedMemory<Tile>), stream, a);
    });
  });
}

}  // namespace qkscope::cuda
