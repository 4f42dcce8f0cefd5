// Moments of bfloat16 and float16 rows. A block streams the chunks of its segment through shared
// memory, 128 rows at a time. Half of its warps process each tile per channel (power sums, ranges);
// the other half multiply it on the tensor cores (Gram matrix, covariances with position). All of
// them compute norms of rows.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/statistics/moment_channels.cuh"
#include "engine/device/cuda/statistics/moment_norms.cuh"
#include "engine/device/cuda/statistics/moment_products.cuh"
#include "engine/device/cuda/statistics/statistics_moments.h"
#include "engine/device/cuda/tensor_core.cuh"

namespace qkscope::cuda {
namespace {

// Clears the sums in shared memory, which are stored in front of the tiles.
template <typename Tile>
__device__ __forceinline__ void clear(MomentSharedMemory<Tile>& memory) {
  auto* words = reinterpret_cast<uint4*>(&memory);
  constexpr auto kWords = offsetof(MomentSharedMemory<Tile>, tiles) / sizeof(uint4);
#pragma unroll 4
  for (unsigned i = threadIdx.x; i < kWords; i += Tile::kBlockThreads) words[i] = {};
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
    synchronize_roles<Tile>();
    load_ahead((stage_ + Tile::kStages - 1) % Tile::kStages);
    const int arrived = stage_;
    stage_ = (stage_ + 1) % Tile::kStages;
    return arrived;
  }

 private:
  __device__ void load_ahead(int stage) {
    if (threadIdx.x == 0)
      memory_.loaded[stage] = {ahead_.has_tile() ? ahead_.rows() : 0, ahead_.chunk.rows,
                               ahead_.chunk.position, ahead_.index, ahead_.ends_chunk()};
    if (ahead_.has_tile()) {
      load_tile_rows<Tile::kRows, Tile::kWidth, Tile::kBlockThreads>(
          memory_.tiles[stage], rows_, ahead_.chunk.row + ahead_.offset, ahead_.rows());
      if (threadIdx.x < Tile::kRows) memory_.positions[stage][threadIdx.x] = position_columns();
      ahead_.next();
    }
    commit_copy_group();  // an empty group counts too: wait_for_older_copy_groups counts groups
  }

  // Returns the row of MomentSharedMemory::positions that this thread stores; zeros past the chunk.
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
  TileIterator<Tile> ahead_;
  int stage_ = 0;
};

// Role of the first half of the warps: norms of rows, powers of channels, shift of the tile.
template <typename T, typename Tile>
__device__ void sum_channels(MomentSharedMemory<Tile>& memory, const MomentArguments& a, int head,
                             MomentSegment segment, bool shifted) {
  TileStream<T, Tile> tiles(memory, a, head, segment);
  RowNorms<T, Tile> norms(a);
  ChannelMoments<T, Tile> channels(a, head);
  for (int stage = tiles.next(); memory.loaded[stage].rows > 0; stage = tiles.next()) {
    const auto& loaded = memory.loaded[stage];
    char* tile = memory.tiles[stage];
    norms.add(tile);
    if (loaded.ends_chunk) norms.finish_chunk(memory);
    if (loaded.chunk_rows <= kFewRows) {
      channels.add_short_chunk(memory, a, head, tile, loaded);
      continue;
    }
    channels.add(tile, loaded.rows);
    if (shifted) {
      synchronize_roles<Tile>();
      channels.shift(tile, loaded.rows);
      synchronize_roles<Tile>();
    }
    if (loaded.ends_chunk) channels.finish_chunk(memory, a, head, loaded);
  }
  channels.store(memory, a, a.records + static_cast<std::int64_t>(blockIdx.x) * a.record.size());
}

// Role of the second half of the warps: norms of rows, Gram matrix, products with position.
template <typename T, typename Tile>
__device__ void multiply_channels(MomentSharedMemory<Tile>& memory, const MomentArguments& a,
                                  int head, MomentSegment segment, bool shifted) {
  TileStream<T, Tile> tiles(memory, a, head, segment);
  RowNorms<T, Tile> norms(a);
  GramMatrix<T, Tile> products;
  for (int stage = tiles.next(); memory.loaded[stage].rows > 0; stage = tiles.next()) {
    const auto& loaded = memory.loaded[stage];
    const char* tile = memory.tiles[stage];
    norms.add(tile);
    if (loaded.ends_chunk) norms.finish_chunk(memory);
    if (loaded.chunk_rows <= kFewRows) {
      products.add_short_tile(memory, a, head, tile, loaded.rows);
      continue;
    }
    if (shifted) {  // the other role shifts the tile between these barriers
      synchronize_roles<Tile>();
      synchronize_roles<Tile>();
    }
    products.add(tile, memory.positions[stage]);
    if (loaded.ends_chunk) products.finish_chunk(memory, loaded.position);
  }
  double* record = a.records + static_cast<std::int64_t>(blockIdx.x) * a.record.size();
  products.flush_to_float64(memory);
  products.store(memory, record, static_cast<int>(a.record.dim));
  norms.store(memory, a, record);
}

template <typename T, typename Tile>
__global__ void __launch_bounds__(Tile::kBlockThreads, Tile::kWidth == 64 ? 2 : 1)
    moments_kernel(const MomentArguments a) {
  extern __shared__ __align__(16) char shared[];
  auto& memory = *reinterpret_cast<MomentSharedMemory<Tile>*>(shared);
  const auto heads = static_cast<int>(a.heads), dim = static_cast<int>(a.record.dim);
  const int head = static_cast<int>(blockIdx.x) % heads;
  const auto segment = a.segments[static_cast<int>(blockIdx.x) / heads];
  clear(memory);
  const bool has_shift = threadIdx.x < dim && a.shift.product[head * dim + threadIdx.x] != 0.0f;
  const bool shifted = __syncthreads_or(has_shift);
  if (threadIdx.x < Tile::kThreads)
    sum_channels<T, Tile>(memory, a, head, segment, shifted);
  else
    multiply_channels<T, Tile>(memory, a, head, segment, shifted);
}

}  // namespace

bool moments_fit_tensor_cores(const MomentArguments& a) {
  return (a.dtype == DType::bf16 || (a.dtype == DType::f16 && !a.bucket_covariance)) &&
         a.record.dim <= 128 && a.record.dim % 8 == 0 && a.row_stride % 8 == 0 &&
         is_16_byte_aligned(a.x) &&
         sizeof(MomentSharedMemory<MomentTile<128>>) <= shared_memory_limit();
}

void sum_moments_16bit(const MomentArguments& a, cudaStream_t stream) {
  dispatch_16bit_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    dispatch_width<64, 128>(a.record.dim, [&](auto width) {
      using Tile = MomentTile<width>;
      launch_with_shared_memory("moments", moments_kernel<T, Tile>, a.segment_count * a.heads,
                                Tile::kBlockThreads, sizeof(MomentSharedMemory<Tile>), stream, a);
    });
  });
}

}  // namespace qkscope::cuda
