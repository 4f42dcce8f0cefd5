// Gram matrix of the moment kernel for 16-bit types on the tensor cores, and products of channels
// with position, which are columns of the same product: X^T [X | 1 t u].
#pragma once

#include <cstdint>

#include "engine/device/cuda/statistics/moment_channels.cuh"
#include "engine/device/cuda/tensor_core.cuh"

namespace qkscope::cuda {

// The Gram matrix is computed in blocks of 16 x 16 on and above the diagonal: block rows P and
// kBlocks - 1 - P together have kBlocks + 1 blocks. Two warps share such a pair of block rows: one
// computes the left half of each block and the products of block row P with position, the other
// the right half and the products of the other block row.
template <typename T, typename Tile>
class GramMatrix {
 public:
  // Adds the products of a tile of shifted rows.
  __device__ void add(const char* tile, const uint4* positions) {
    if (pair_ == 0) return add_block_rows<0>(tile, positions);
    if (pair_ == 1) return add_block_rows<1>(tile, positions);
    if constexpr (kBlocks > 4) {
      if (pair_ == 2)
        add_block_rows<2>(tile, positions);
      else
        add_block_rows<3>(tile, positions);
    }
  }

  // Adds the Gram matrix of a tile with few rows, in float64.
  __device__ void add_short_tile(MomentSharedMemory<Tile>& memory, const MomentArguments& a,
                                 int head, const char* tile, int rows) const {
    const auto dim = static_cast<int>(a.record.dim);
    const float* shift = a.shift.product + head * dim;
    const auto value = [&](const char* row, int channel) {
      if (channel >= dim) return 0.0;
      return static_cast<double>(to_float(reinterpret_cast<const T*>(row)[channel])) -
             shift[channel];
    };
    for (int r = 0; r < rows; ++r) {
      const char* row = tile + r * kPitch<Tile::kWidth>;
      const int below = 4 * (kBlocks - pair_);  // first product of the other block row
      const double left[4] = {value(row, row_of(0)), value(row, row_of(2)),
                              value(row, row_of(below)), value(row, row_of(below + 2))};
      for (int i = 0; i < kProducts; i += 4) {
        const double right[2] = {value(row, column_of(i)), value(row, column_of(i + 1))};
#pragma unroll
        for (int k = 0; k < 4; ++k)
          memory.products[i + k][thread_] +=
              (i < below ? left[k / 2] : left[2 + k / 2]) * right[k % 2];
      }
    }
  }

  // Adds the float32 sums to the float64 sums of the block and clears them.
  __device__ void flush_to_float64(MomentSharedMemory<Tile>& memory) {
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
      memory.products[i][thread_] += products_[i / 4][i % 4];
      products_[i / 4][i % 4] = 0;
    }
  }

  __device__ void finish_chunk(MomentSharedMemory<Tile>& memory, int position) {
    if (++chunks_ % kFlushChunks == 0) flush_to_float64(memory);
    const int block = half_ == 0 ? pair_ : kBlocks - 1 - pair_;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Lane 0 of each quad sums z and z t; lanes 1 and 2 sum the products of z and the parts of u.
      float &z = positions_[2 * i], &zt = positions_[2 * i + 1];
      const float part = z + zt;
      const float zu = __shfl_down_sync(kAllLanes, part, 1) + __shfl_down_sync(kAllLanes, part, 2);
      if (lane_ % 4 == 0) {
        const int channel = block * 16 + lane_ / 4 + 8 * i;
        const double sum = z;
        memory.sums[kSumZT][channel] += zt + position * sum;
        memory.sums[kSumZU][channel] += zu + log2_of_position(position) * sum;
      }
      z = zt = 0;
    }
  }

  // Writes the float64 sums of products to the block's record, as the packed upper triangle of a
  // symmetric matrix.
  __device__ void store(const MomentSharedMemory<Tile>& memory, double* record, int dim) const {
#pragma unroll 1
    for (int block = 0; block <= kBlocks; ++block)
#pragma unroll
      for (int i = 4 * block; i < 4 * block + 4; ++i) {
        const int row = row_of(i), column = column_of(i);
        if (row <= column && column < dim)
          record[row * dim - row * (row - 1) / 2 + column - row] = memory.products[i][thread_];
      }
  }

 private:
  static constexpr int kBlocks = Tile::kBlocks;
  static constexpr int kProducts = 4 * (kBlocks + 1);
  static constexpr int kFlushChunks = 4;  // chunks after which float32 sums are flushed
  using Fragments = float[kBlocks + 1][4];

  // Row and column, in the Gram matrix, of this thread's i-th product.
  __device__ int row_of(int i) const {
    const bool of_first = i / 4 < kBlocks - pair_;
    return (of_first ? pair_ : kBlocks - 1 - pair_) * 16 + lane_ / 4 + i % 4 / 2 * 8;
  }
  __device__ int column_of(int i) const {
    const int block = i / 4, first = kBlocks - pair_;  // blocks of block row P
    return (block < first ? pair_ + block : kBlocks - 1 - pair_ + block - first) * 16 + half_ * 8 +
           lane_ % 4 * 2 + i % 2;
  }

  // Adds block rows P and kBlocks - 1 - P. Tensor cores accumulate with truncation, so their sums
  // over a tile are added to sums that round to nearest.
  template <int P>
  __device__ __forceinline__ void add_block_rows(const char* tile, const uint4* positions) {
    constexpr int Q = kBlocks - 1 - P, kPitchBytes = kPitch<Tile::kWidth>;
    // Row addresses for ldmatrix.trans: matrices of 8 rows by 8 channels in the order that mma
    // expects of its left factor X^T.
    const auto rows =
        shared_address(tile) + (lane_ % 8 + lane_ / 16 * 8) * kPitchBytes + lane_ / 8 % 2 * 16;
    const auto columns =
        shared_address(tile) + lane_ % 16 * kPitchBytes + lane_ / 16 * 32 + half_ * 16;
    const auto of_positions = shared_address(reinterpret_cast<const char*>(positions + lane_));
    Fragments sums = {};
    float position_sums[4] = {};
    std::uint32_t u[4];  // position columns of two steps
#pragma unroll 4
    for (int step = 0; step < Tile::kRows / 16; ++step) {
      std::uint32_t a_p[4], a_q[4];
      load_matrices_transposed(a_p, rows + step * 16 * kPitchBytes + P * 32);
      load_matrices_transposed(a_q, rows + step * 16 * kPitchBytes + Q * 32);
#pragma unroll
      for (int pair = P / 2; pair < kBlocks / 2; ++pair) {
        std::uint32_t b[4];  // the same half of two blocks
        load_matrices_transposed(b, columns + step * 16 * kPitchBytes + pair * 64);
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const int block = 2 * pair + s;
          if (block >= P) multiply_add<T>(sums[block - P], a_p, b[2 * s], b[2 * s + 1]);
          if (block >= Q)
            multiply_add<T>(sums[kBlocks - P + block - Q], a_q, b[2 * s], b[2 * s + 1]);
        }
      }
      if (step % 2 == 0) load_matrices_transposed(u, of_positions + step * 16 * 16);
      const auto u0 = u[step % 2 * 2], u1 = u[step % 2 * 2 + 1];
      if (half_ == 0)
        multiply_add<T>(position_sums, a_p, u0, u1);
      else
        multiply_add<T>(position_sums, a_q, u0, u1);
    }
#pragma unroll
    for (int i = 0; i < kProducts; ++i) products_[i / 4][i % 4] += sums[i / 4][i % 4];
#pragma unroll
    for (int i = 0; i < 4; ++i) positions_[i] += position_sums[i];
  }

  int thread_ = thread_of_role<Tile>();
  int lane_ = thread_ % 32, half_ = thread_ / 32 % 2, pair_ = thread_ / 64;
  int chunks_ = 0;
  Fragments products_ = {};
  float positions_[4] = {};  // products of 16 channels with position
};

}  // namespace qkscope::cuda
