// Moments of bfloat16 and float16 rows. A block streams the chunks of its segment through shared
// memory, 32 rows at a time, and processes each tile in three ways: per channel (power sums,
// covariances with position, ranges), per row (norms), and as a Gram matrix on the tensor cores.
#include <cmath>
#include <cstdint>

#include "engine/device/cuda/elements.cuh"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/statistics/moment_channels.cuh"
#include "engine/device/cuda/statistics/statistics_moments.h"
#include "engine/device/cuda/tensor_core.cuh"

namespace qkscope::cuda {
namespace {

// L2 norms of rows and of rotary pairs; each warp processes every kWarps-th row of a tile.
template <typename T, typename Tile>
class RowNorms {
 public:
  __device__ RowNorms(const MomentArguments& a)
      : lane_(threadIdx.x % 32),
        dim_(static_cast<int>(a.record.dim)),
        pairs_(static_cast<int>(a.record.pairs)),
        interleaved_(a.interleaved) {}

  __device__ void add(const char* tile) {
    const char* rows = tile + threadIdx.x / 32 * kWarpRows * kPitch<Tile::kWidth>;
    float squares[kWarpRows];  // rows beyond the chunk are zero
    if (2 * pairs_ == Tile::kWidth && !interleaved_)
      add_pairs<true>(rows, squares);
    else if (pairs_ == 0)
      add_pairs<false>(rows, squares);
    else
      add_other_pairs(rows, squares);
    const float norm = sqrt_fast(sum_of_row(squares));
    of_rows_ += norm;
    norm_max_ = fmaxf(norm_max_, norm);
  }

  __device__ void finish_chunk() {
#pragma unroll
    for (int j = 0; j < Tile::kLanePairs; ++j) {
      pair_totals_[j] += of_pairs_[j];
      of_pairs_[j] = 0;
    }
    total_ += of_rows_;
    of_rows_ = 0;
  }

  // Called by all threads of the block.
  __device__ void store(MomentSharedMemory<Tile>& memory, const MomentArguments& a,
                        double* record) {
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int j = 0; j < Tile::kLanePairs; ++j)
      if (pair_of(j) < pairs_) memory.pairs[warp][pair_of(j)] = pair_totals_[j];
    double total = lane_ % kRowLanes == 0 ? total_ : 0.0;  // count each row once
    for (int distance = kRowLanes; distance < 32; distance *= 2) {
      total += __shfl_xor_sync(kAllLanes, total, distance);
      norm_max_ = fmaxf(norm_max_, __shfl_xor_sync(kAllLanes, norm_max_, distance));
    }
    if (lane_ == 0) {
      memory.norms[warp] = total;
      memory.norm_max[warp] = norm_max_;
    }
    __syncthreads();
    const int thread = threadIdx.x;
    if (thread < pairs_) {
      double sum = 0;
      for (int i = 0; i < Tile::kWarps; ++i) sum += memory.pairs[i][thread];
      record[a.record.offset_of_pair_magnitudes() + thread] = sum;
    }
    if (thread != 0) return;
    double sum = 0;
    float largest = 0;
    for (int i = 0; i < Tile::kWarps; ++i) {
      sum += memory.norms[i];
      largest = fmaxf(largest, memory.norm_max[i]);
    }
    record[a.record.norm_offset()] = sum;
    record[a.record.norm_max_offset()] = largest;
  }

 private:
  static constexpr int kWarpRows = Tile::kRows / Tile::kWarps;
  static constexpr int kLanePairs = Tile::kLanePairs;
  static constexpr int kRowLanes =
      32 / kWarpRows;  // adjacent lanes that receive the sum of one row

  // Reduces over all lanes and returns the sum of one row to each lane.
  __device__ __forceinline__ float sum_of_row(const float (&of_lane)[kWarpRows]) const {
    float sums[kWarpRows];
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) sums[i] = of_lane[i];
    reduce_across_lanes<kWarpRows / 2, 16>(sums);
    reduce_across_lanes<kWarpRows / 4, 8>(sums);
    if constexpr (kWarpRows > 4) reduce_across_lanes<kWarpRows / 8, 4>(sums);
    static_assert(kWarpRows == 4 || kWarpRows == 8);
    float sum = sums[0];
#pragma unroll
    for (int distance = kRowLanes / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    return sum;
  }

  // Returns the index of a lane's j-th rotary pair. Lanes hold consecutive pairs (i, i + kWidth /
  // 2) if all channels are rotated.
  __device__ int pair_of(int j) const {
    return 2 * pairs_ == Tile::kWidth && !interleaved_ ? lane_ * kLanePairs + j : lane_ + 32 * j;
  }

  // Each lane processes kLanePairs channels starting at lane * kLanePairs, and kLanePairs channels
  // starting at lane * kLanePairs + kWidth / 2.
  template <bool kPairs>
  __device__ __forceinline__ void add_pairs(const char* rows, float (&squares)[kWarpRows]) {
    using Lane = Pack<T, kLanePairs>;
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      const auto* row = reinterpret_cast<const Lane*>(rows + i * kPitch<Tile::kWidth>);
      const Lane ones = row[lane_], others = row[lane_ + 32];
      squares[i] = 0;
#pragma unroll
      for (int j = 0; j < kLanePairs; ++j) {
        const float one = to_float(ones.values[j]), other = to_float(others.values[j]);
        const float square = fmaf(one, one, other * other);
        if constexpr (kPairs) of_pairs_[j] += sqrt_fast(square);
        squares[i] += square;
      }
    }
  }

  // Adds the magnitudes of rotary pairs that are interleaved or cover only some of the channels.
  __device__ void add_other_pairs(const char* rows, float (&squares)[kWarpRows]) {
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      const char* x = rows + i * kPitch<Tile::kWidth>;
      squares[i] = 0;
#pragma unroll
      for (int j = 0; j < kLanePairs; ++j) {
        const int pair = lane_ + 32 * j;
        if (pair >= pairs_) continue;
        const float one = at(x, interleaved_ ? 2 * pair : pair);
        const float other = at(x, interleaved_ ? 2 * pair + 1 : pair + pairs_);
        const float square = fmaf(one, one, other * other);
        of_pairs_[j] += sqrt_fast(square);
        squares[i] += square;
      }
      for (int channel = 2 * pairs_ + 2 * lane_; channel < dim_; channel += 64) {
        const float one = at(x, channel), other = at(x, channel + 1);
        squares[i] = fmaf(one, one, fmaf(other, other, squares[i]));
      }
    }
  }

  __device__ static float at(const char* row, int channel) {
    return to_float(reinterpret_cast<const T*>(row)[channel]);
  }

  int lane_, dim_, pairs_;
  bool interleaved_;
  float of_rows_ = 0, norm_max_ = 0;
  float of_pairs_[Tile::kLanePairs] = {};
  double total_ = 0;
  double pair_totals_[Tile::kLanePairs] = {};
};

// Adds block rows P and kBlocks - 1 - P of the Gram matrix tile^T tile to `products`. Tensor cores
// accumulate with truncation, so after 32 rows their sums are added to sums that round to nearest.
template <typename T, typename Tile, int P>
__device__ void multiply_rows(GramFragments<Tile>& products, std::uint32_t tile, int half) {
  constexpr int kBlocks = Tile::kBlocks, Q = kBlocks - 1 - P, kPitchBytes = kPitch<Tile::kWidth>;
  const int lane = threadIdx.x % 32;
  const auto rows = tile + lane % 16 * kPitchBytes + lane / 16 * 16;
  const auto columns = tile + lane % 16 * kPitchBytes + lane / 16 * 32 + half * 16;
  GramFragments<Tile> sums = {};
#pragma unroll
  for (int step = 0; step < Tile::kRows / 16; ++step) {
    // ldmatrix.trans gives 8 x 8 matrices of tile rows by channels in this order: rows 0-7, rows
    // 8-15, then the same rows of the next 8 channels.
    std::uint32_t p[4], q[4];
    load_matrices_transposed(p, rows + step * 16 * kPitchBytes + P * 32);
    load_matrices_transposed(q, rows + step * 16 * kPitchBytes + Q * 32);
    const std::uint32_t a_p[4] = {p[0], p[2], p[1], p[3]}, a_q[4] = {q[0], q[2], q[1], q[3]};
#pragma unroll
    for (int pair = P / 2; pair < kBlocks / 2; ++pair) {
      std::uint32_t b[4];  // the same half of two blocks
      load_matrices_transposed(b, columns + step * 16 * kPitchBytes + pair * 64);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const int block = 2 * pair + s;
        if (block >= P) multiply_add<T>(sums[block - P], a_p, b[2 * s], b[2 * s + 1]);
        if (block >= Q) multiply_add<T>(sums[kBlocks - P + block - Q], a_q, b[2 * s], b[2 * s + 1]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i <= kBlocks; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) products[i][j] += sums[i][j];
}

template <typename T, typename Tile>
__device__ void multiply_tile(GramFragments<Tile>& products, std::uint32_t tile) {
  const int warp = threadIdx.x / 32;
  if (warp / 2 == 0) return multiply_rows<T, Tile, 0>(products, tile, warp % 2);
  if (warp / 2 == 1) return multiply_rows<T, Tile, 1>(products, tile, warp % 2);
  if constexpr (Tile::kBlocks > 4) {
    if (warp / 2 == 2)
      multiply_rows<T, Tile, 2>(products, tile, warp % 2);
    else
      multiply_rows<T, Tile, 3>(products, tile, warp % 2);
  }
}

// Calls use(i, row, column) for each product of this thread in the triangle of the Gram matrix.
template <typename Tile, typename Use>
__device__ void each_product(std::int64_t dim, Use use) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int p = warp / 2, q = Tile::kBlocks - 1 - p, half = warp % 2;
  for (int i = 0; i < 4 * (Tile::kBlocks + 1); ++i) {
    const int block = i / 4;
    const bool of_p = block < Tile::kBlocks - p;
    const int row = (of_p ? p : q) * 16 + lane / 4 + i % 4 / 2 * 8;
    const int column =
        (of_p ? p + block : q + block - (Tile::kBlocks - p)) * 16 + half * 8 + lane % 4 * 2 + i % 2;
    if (row <= column && column < dim) use(i, row, column);
  }
}

// Adds the Gram matrix of a tile with few rows, in float64. Each thread computes the same products
// as in each_product().
template <typename T, typename Tile>
__device__ void multiply_short_tile(MomentSharedMemory<Tile>& memory, const MomentArguments& a,
                                    int head, const char* tile, int rows) {
  const auto dim = static_cast<int>(a.record.dim);
  const float* shift = a.shift.product + head * dim;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int p = warp / 2, q = Tile::kBlocks - 1 - p;
  const auto value = [&](const char* row, int channel) {
    if (channel >= dim) return 0.0;
    return static_cast<double>(to_float(reinterpret_cast<const T*>(row)[channel])) - shift[channel];
  };
  for (int r = 0; r < rows; ++r) {
    const char* row = tile + r * kPitch<Tile::kWidth>;
    const double left[2][2] = {{value(row, p * 16 + lane / 4), value(row, p * 16 + lane / 4 + 8)},
                               {value(row, q * 16 + lane / 4), value(row, q * 16 + lane / 4 + 8)}};
    for (int block = 0; block <= Tile::kBlocks; ++block) {
      const bool of_p = block < Tile::kBlocks - p;
      const int column =
          (of_p ? p + block : q + block - (Tile::kBlocks - p)) * 16 + warp % 2 * 8 + lane % 4 * 2;
      const double right[2] = {value(row, column), value(row, column + 1)};
#pragma unroll
      for (int j = 0; j < 4; ++j)
        memory.products[block * 4 + j][threadIdx.x] +=
            (of_p ? left[0][j / 2] : left[1][j / 2]) * right[j % 2];
    }
  }
}

// Adds the float32 products of a chunk to the float64 sums of the block and clears them.
template <typename Tile>
__device__ __forceinline__ void fold_products(GramFragments<Tile>& products,
                                              MomentSharedMemory<Tile>& memory) {
#pragma unroll
  for (int i = 0; i < 4 * (Tile::kBlocks + 1); ++i) {
    memory.products[i][threadIdx.x] += products[i / 4][i % 4];
    products[i / 4][i % 4] = 0;
  }
}

// Writes the float64 sums of products into the triangle of the block's record.
template <typename Tile>
__device__ __forceinline__ void store_products(const MomentSharedMemory<Tile>& memory,
                                               double* record, int dim) {
  each_product<Tile>(dim, [&](int i, int row, int column) {
    record[row * dim - row * (row - 1) / 2 + column - row] = memory.products[i][threadIdx.x];
  });
}

template <typename Tile>
__device__ __forceinline__ void clear(MomentSharedMemory<Tile>& memory) {
  for (auto& products : memory.products) products[threadIdx.x] = 0;
  for (auto& sums : memory.sums)
    for (int i = threadIdx.x; i < Tile::kWidth; i += Tile::kThreads) sums[i] = 0;
}

template <typename T, typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, 2) moments_kernel(const MomentArguments a) {
  extern __shared__ __align__(16) char shared[];
  auto& memory = *reinterpret_cast<MomentSharedMemory<Tile>*>(shared);
  const auto heads = static_cast<int>(a.heads);
  const int head = static_cast<int>(blockIdx.x) % heads;
  const int segment = static_cast<int>(blockIdx.x) / heads;
  const HeadRows<const std::uint16_t, true> rows{
      static_cast<const std::uint16_t*>(a.x) + head * a.record.dim, a.row_stride,
      static_cast<int>(a.record.dim)};
  clear(memory);

  TileIterator<Tile> ahead(a.chunks, a.segments[segment]);
  const auto load_ahead = [&](int stage) {
    if (ahead.has_tile()) {
      load_tile_rows<Tile::kRows, Tile::kWidth, Tile::kThreads>(
          memory.tiles[stage], rows, ahead.chunk.row + ahead.offset, ahead.rows());
      ahead.next();
    }
    commit_copy_group();  // an empty group counts too: wait_for_older_copy_groups counts groups
  };
  for (int stage = 0; stage < Tile::kStages - 1; ++stage) load_ahead(stage);

  ChannelMoments<T, Tile> channels(a, head);
  RowNorms<T, Tile> lengths(a);
  GramFragments<Tile> products = {};
  const bool shifted = __syncthreads_or(channels.has_shift());
  int stage = 0;
  for (TileIterator<Tile> walk(a.chunks, a.segments[segment]); walk.has_tile(); walk.next()) {
    wait_for_older_copy_groups<Tile::kStages - 2>();
    __syncthreads();  // the tile has arrived, and every warp is done with the previous one
    load_ahead((stage + Tile::kStages - 1) % Tile::kStages);
    char* tile = memory.tiles[stage];
    stage = (stage + 1) % Tile::kStages;
    lengths.add(tile);
    if (walk.chunk.rows <= kFewRows) {
      channels.add_short_chunk(memory, a, head, tile, walk);
      lengths.finish_chunk();
      multiply_short_tile<T, Tile>(memory, a, head, tile, walk.rows());
      continue;
    }
    channels.add(tile, walk);
    if (shifted) {
      __syncthreads();
      channels.shift(tile, walk.rows());
      __syncthreads();
    }
    multiply_tile<T, Tile>(products, shared_address(tile));
    if (!walk.ends_chunk()) continue;
    channels.finish_chunk(memory, a, head, walk);
    lengths.finish_chunk();
    fold_products<Tile>(products, memory);
  }

  double* record = a.records + static_cast<std::int64_t>(blockIdx.x) * a.record.size();
  store_products(memory, record, rows.d_head);
  channels.store(memory, a, record);
  lengths.store(memory, a, record);
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
                                Tile::kThreads, sizeof(MomentSharedMemory<Tile>), stream, a);
    });
  });
}

}  // namespace qkscope::cuda
