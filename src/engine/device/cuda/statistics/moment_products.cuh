// Tensor-core products of the moment kernel for 16-bit types, X^T [X | 1 t u]: the Gram matrix of
// the channels and their products with position t and u = log2(t + 1).
#pragma once

#include <cstdint>

#include "engine/device/cuda/statistics/moment_channels.cuh"
#include "engine/device/cuda/tensor_core.cuh"

namespace qkscope::cuda {

// One thread's elements of the Gram matrix X^T X (see GramFragments) and of the products of
// channels with position, X^T [1 t u], where t is the position and u = log2(t + 1). Warp 2 P
// computes these products for the channels of block row P, warp 2 P + 1 for those of block row
// kBlocks - 1 - P.
template <typename T, typename Tile>
class GramMatrix {
 public:
  // Adds X^T X and the position products X^T [1 t u] of a tile X of shifted rows to the sums.
  __device__ void add(const char* tile, const uint4* positions) {
    if (pair_ == 0) return add_block_row_products<0>(tile, positions);
    if (pair_ == 1) return add_block_row_products<1>(tile, positions);
    if constexpr (kBlocks > 4) {
      if (pair_ == 2)
        add_block_row_products<2>(tile, positions);
      else
        add_block_row_products<3>(tile, positions);
    }
  }

  __device__ void store(float* fragments) const {
#pragma unroll
    for (int i = 0; i < kProducts; ++i)
      fragments[i * Tile::kThreads + threadIdx.x] = products_[i / 4][i % 4];
  }

  __device__ void finish_chunk(MomentSharedMemory<Tile>& memory, int position) {
    const int block = half_ == 0 ? pair_ : kBlocks - 1 - pair_;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Lane 0 of each quad holds the sums of z and z t (ChannelSum); lanes 1 and 2 hold the
      // products of z with the three 16-bit parts of u.
      float &z = positions_[2 * i], &zt = positions_[2 * i + 1];
      const float part = z + zt;
      const float zu = __shfl_down_sync(kAllLanes, part, 1) + __shfl_down_sync(kAllLanes, part, 2);
      if (lane_ % 4 == 0) {
        const int channel = block * 16 + lane_ / 4 + 8 * i;
        const double sum = z;
        memory.position_sums[0][channel] += zt + position * sum;
        memory.position_sums[1][channel] += zu + log2_of_position(position) * sum;
      }
      z = zt = 0;
    }
  }

 private:
  static constexpr int kBlocks = Tile::kBlocks;
  static constexpr int kProducts = GramFragments{kBlocks}.elements_per_thread();
  using Fragments = float[kBlocks + 1][4];

  // Adds a tile's contribution to block rows P and Q = kBlocks - 1 - P of the Gram matrix. The last
  // two block columns are summed separately, so that the sums fit into registers.
  template <int P>
  __device__ __forceinline__ void add_block_row_products(const char* tile, const uint4* positions) {
    add_block_products<P, P / 2, kBlocks / 2 - 1, false>(tile, positions);
    add_block_products<P, kBlocks / 2 - 1, kBlocks / 2, true>(tile, positions);
  }

  // Adds a tile to block columns [2 kBegin, 2 kEnd) of block rows P and Q. Tensor cores truncate
  // sums, so a tile's sums are added to products_ by ordinary additions, which round.
  template <int P, int kBegin, int kEnd, bool kPositions>
  __device__ __forceinline__ void add_block_products(const char* tile, const uint4* positions) {
    constexpr int Q = kBlocks - 1 - P, kPitchBytes = kPitch<Tile::kWidth>;
    // Row addresses for ldmatrix.trans: matrices of 8 rows by 8 channels in the order that mma
    // expects for its left operand X^T.
    const auto rows =
        shared_address(tile) + (lane_ % 8 + lane_ / 16 * 8) * kPitchBytes + lane_ / 8 % 2 * 16;
    const auto columns =
        shared_address(tile) + lane_ % 16 * kPitchBytes + lane_ / 16 * 32 + half_ * 16;
    const auto of_positions = shared_address(reinterpret_cast<const char*>(positions + lane_));
    Fragments sums = {};
    float position_sums[4] = {};
    std::uint32_t u[4];  // position columns of two steps
#pragma unroll 2
    for (int step = 0; step < Tile::kRows / 16; ++step) {
      std::uint32_t a_p[4], a_q[4];
      ldmatrix_x4_trans(a_p, rows + step * 16 * kPitchBytes + P * 32);
      if (Q < 2 * kEnd || kPositions)
        ldmatrix_x4_trans(a_q, rows + step * 16 * kPitchBytes + Q * 32);
#pragma unroll
      for (int pair = kBegin; pair < kEnd; ++pair) {
        std::uint32_t b[4];  // the same half of two blocks
        ldmatrix_x4_trans(b, columns + step * 16 * kPitchBytes + pair * 64);
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const int block = 2 * pair + s;
          if (block >= P) mma_m16n8k16<T>(sums[block - P], a_p, b[2 * s], b[2 * s + 1]);
          if (block >= Q)
            mma_m16n8k16<T>(sums[kBlocks - P + block - Q], a_q, b[2 * s], b[2 * s + 1]);
        }
      }
      if constexpr (kPositions) {
        if (step % 2 == 0) ldmatrix_x4_trans(u, of_positions + step * 16 * 16);
        const auto u0 = u[step % 2 * 2], u1 = u[step % 2 * 2 + 1];
        if (half_ == 0)
          mma_m16n8k16<T>(position_sums, a_p, u0, u1);
        else
          mma_m16n8k16<T>(position_sums, a_q, u0, u1);
      }
    }
#pragma unroll
    for (int block = 0; block <= kBlocks; ++block) {
      const int column = block < kBlocks - P ? P + block : Q + block - (kBlocks - P);
      if (column < 2 * kBegin || column >= 2 * kEnd) continue;
      for (int i = 0; i < 4; ++i) products_[block][i] += sums[block][i];
    }
    if constexpr (kPositions)
      for (int i = 0; i < 4; ++i) positions_[i] += position_sums[i];
  }

  int lane_ = threadIdx.x % 32, half_ = threadIdx.x / 32 % 2, pair_ = threadIdx.x / 64;
  Fragments products_ = {};
  float positions_[4] = {};  // products of 16 channels with position
};

}  // namespace qkscope::cuda
