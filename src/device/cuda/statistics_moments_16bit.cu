// Moments of bfloat16 and float16 rows. A block takes the chunks of its segment through shared
// memory, 32 rows at a time, and looks at each tile three times: by channel (sums of powers, with
// position, ranges), by row (lengths), and as a product of the tile with itself on the matrix
// units.
#include <cmath>

#include "device/cuda/cuda_error.h"
#include "device/cuda/device_memory.h"
#include "device/cuda/elements.cuh"
#include "device/cuda/statistics_moments.h"
#include "device/cuda/tensor_core.cuh"

namespace qkscope::cuda {
namespace {

// The product X^T X is cut into blocks of 16 x 16, of which those on and above the diagonal are
// computed: rows P and kBlocks - 1 - P of blocks together have kBlocks + 1 of them. Two warps share
// such a pair of rows, one takes the left and one the right half of each block. By channel a warp
// takes 16 of them.
template <int kHeadWidth>
struct MomentTile {
  static constexpr int kWidth = kHeadWidth;  // dim, padded
  static constexpr int kBlocks = kWidth / 16;
  static constexpr int kWarps = kBlocks;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kRows = 32;
  static constexpr int kStages = 3;
  static constexpr int kLanePairs = kWidth / 64;  // rotary pairs of a lane
  static constexpr int kBytes = kRows * kPitch<kWidth>;
};

template <typename Tile>
struct MomentMemory {
  double products[4 * (Tile::kBlocks + 1)][Tile::kThreads];  // of each thread
  double sums[6][Tile::kWidth];                              // as MomentSum
  double pairs[Tile::kWarps][Tile::kWidth / 2];
  double norms[Tile::kWarps];
  float norm_max[Tile::kWarps];
  alignas(16) char tiles[Tile::kStages][Tile::kBytes];
};

// A chunk of so few rows, as the first tokens of a document are, is summed in float64: there the
// spread can be much smaller than what is taken off before it is looked at.
constexpr int kFewRows = 8;

template <typename Tile>
using Products = float[Tile::kBlocks + 1][4];

// The tiles of a segment, one after another.
template <typename Tile>
struct TileWalk {
  const MomentChunk* chunks;
  std::int32_t index, end;
  MomentChunk chunk = {};
  std::int32_t offset = 0;  // of the tile in its chunk

  __device__ TileWalk(const MomentChunk* all, MomentSegment segment)
      : chunks(all), index(segment.begin), end(segment.end) {
    if (exists()) chunk = chunks[index];
  }
  __device__ bool exists() const { return index < end; }
  __device__ int rows() const { return min(chunk.rows - offset, Tile::kRows); }
  __device__ bool ends_chunk() const { return offset + Tile::kRows >= chunk.rows; }
  __device__ void next() {
    if (!ends_chunk()) {
      offset += Tile::kRows;
      return;
    }
    offset = 0;
    if (++index < end) chunk = chunks[index];
  }
};

// Sums over a lane's rows of one channel, around its centre.
struct ChannelSums {
  float y = 0, y2 = 0, yt = 0, yu = 0, y3 = 0, y4 = 0;  // of the chunk
  double far3 = 0, far4 = 0;                            // powers of outliers, of the segment

  // Third and fourth powers of outliers are left to add_far: one of them can outweigh all others,
  // and float32 is not enough. Whether it is one.
  __device__ __forceinline__ bool add(float x, float centre, float limit, float t, float u) {
    const float from_centre = x - centre;
    const float square = from_centre * from_centre;
    y += from_centre;
    y2 += square;
    yt = fmaf(from_centre, t, yt);
    yu = fmaf(from_centre, u, yu);
    const bool is_far = !(square <= limit);
    const float near = is_far ? 0.0f : square;
    y3 = fmaf(near, from_centre, y3);
    y4 = fmaf(near, near, y4);
    return is_far;
  }
  __device__ void add_far(float x, float centre, float limit) {
    const float from_centre = x - centre;
    if (from_centre * from_centre <= limit) return;
    const double far = static_cast<double>(x) - centre;
    far3 += far * far * far;
    far4 += far * far * far * far;
  }
};

// The least and the largest of two channels.
template <typename T>
struct PairRange;
template <>
struct PairRange<__nv_bfloat16> {
  __nv_bfloat162 least = __float2bfloat162_rn(INFINITY);
  __nv_bfloat162 largest = __float2bfloat162_rn(-INFINITY);

  __device__ __forceinline__ void add(Pack<__nv_bfloat16, 2> pair) {
    const __nv_bfloat162 x(pair.values[0], pair.values[1]);
    least = __hmin2(least, x);
    largest = __hmax2(largest, x);
  }
  __device__ float least_of(int channel) const {
    return to_float(channel == 0 ? least.x : least.y);
  }
  __device__ float largest_of(int channel) const {
    return to_float(channel == 0 ? largest.x : largest.y);
  }
};
template <>
struct PairRange<__half> {
  __half2 least = __float2half2_rn(INFINITY);
  __half2 largest = __float2half2_rn(-INFINITY);

  __device__ __forceinline__ void add(Pack<__half, 2> pair) {
    const __half2 x(pair.values[0], pair.values[1]);
    least = __hmin2(least, x);
    largest = __hmax2(largest, x);
  }
  __device__ float least_of(int channel) const {
    return to_float(channel == 0 ? least.x : least.y);
  }
  __device__ float largest_of(int channel) const {
    return to_float(channel == 0 ? largest.x : largest.y);
  }
};

// Over the four lanes that share a channel; all of them get it.
__device__ float channel_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 8);
  return x + __shfl_xor_sync(kAllLanes, x, 16);
}
__device__ double channel_sum(double x) {
  x += __shfl_xor_sync(kAllLanes, x, 8);
  return x + __shfl_xor_sync(kAllLanes, x, 16);
}

// A warp's 16 channels, two to a lane. The four lanes of a channel take rows that are two apart,
// which lie in different banks.
template <typename T, typename Tile>
class Channels {
 public:
  __device__ Channels(const MomentArguments& a, int head)
      : lane_(threadIdx.x % 32), channel_(threadIdx.x / 32 * 16 + lane_ % 8 * 2) {
    for (int i = 0; i < 2; ++i) {
      if (channel_ + i >= a.record.dim) continue;
      const auto at = head * a.record.dim + channel_ + i;
      centre_[i] = a.shift.centre[at];
      limit_[i] = a.shift.limit[at];
      product_[i] = a.shift.product[at];
    }
  }

  __device__ bool shifts() const { return product_[0] != 0.0f || product_[1] != 0.0f; }

  __device__ void add(const char* tile, const TileWalk<Tile>& walk) {
    const auto position = walk.chunk.position;
    const float row_u =
        log2f(static_cast<float>(position + walk.offset + lane_ + 1)) - begin_u(position);
    const bool has_far = walk.rows() == Tile::kRows ? add_rows<true>(tile, walk, row_u)
                                                    : add_rows<false>(tile, walk, row_u);
    if (has_far) add_far(tile, walk.rows());
  }

  // All of a chunk of few rows, in float64.
  __device__ void add_few(MomentMemory<Tile>& memory, const MomentArguments& a, int head,
                          const char* tile, const TileWalk<Tile>& walk) {
    if (lane_ >= 8) return;
    const auto dim = a.record.dim;
    float* to = a.chunk_sums + (walk.index * a.heads + head) * 2 * dim;
    for (int c = 0; c < 2; ++c) {
      const int channel = channel_ + c;
      if (channel >= dim) return;
      double sum = 0, squares = 0;
      for (int row = 0; row < walk.rows(); ++row) {
        const float x = to_float(reinterpret_cast<const T*>(at(tile, row))[c]);
        const double y = static_cast<double>(x) - centre_[c], t = walk.chunk.position + row;
        sum += y;
        squares += y * y;
        memory.sums[kSumYT][channel] += y * t;
        memory.sums[kSumYU][channel] += y * log2(t + 1);
        memory.sums[kSumY3][channel] += y * y * y;
        memory.sums[kSumY4][channel] += y * y * (y * y);
      }
      memory.sums[kSumY][channel] += sum;
      memory.sums[kSumY2][channel] += squares;
      to[channel] = static_cast<float>(sum);
      to[dim + channel] = static_cast<float>(squares);
    }
    for (int row = 0; row < walk.rows(); ++row) range_.add(pair_at(tile, row));
  }

  // Rows of the tile become rows minus the shift of the product.
  __device__ void shift(char* tile, int rows) const {
    if (!shifts()) return;
    for (int i = 0; i < Tile::kRows / 4; ++i) {
      const int row = row_of(i);
      if (row >= rows) continue;
      auto& pair = *reinterpret_cast<Pack<T, 2>*>(at(tile, row));
      for (int c = 0; c < 2; ++c)
        pair.values[c] = from_float<T>(to_float(pair.values[c]) - product_[c]);
    }
  }

  __device__ void end_chunk(MomentMemory<Tile>& memory, const MomentArguments& a, int head,
                            const TileWalk<Tile>& walk) {
    const double begin_t = walk.chunk.position;
    const double u = begin_u(walk.chunk.position);
    const auto dim = a.record.dim;
    float* to = a.chunk_sums + (walk.index * a.heads + head) * 2 * dim;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      auto& s = sums_[c];
      const int channel = channel_ + c;
      const float of_chunk[6] = {channel_sum(s.y),  channel_sum(s.y2), channel_sum(s.yt),
                                 channel_sum(s.yu), channel_sum(s.y3), channel_sum(s.y4)};
      s.y = s.y2 = s.yt = s.yu = s.y3 = s.y4 = 0;
      if (lane_ >= 8) continue;
      const double y = of_chunk[kSumY];
      memory.sums[kSumY][channel] += y;
      memory.sums[kSumY2][channel] += of_chunk[kSumY2];
      memory.sums[kSumYT][channel] += of_chunk[kSumYT] + begin_t * y;
      memory.sums[kSumYU][channel] += of_chunk[kSumYU] + u * y;
      memory.sums[kSumY3][channel] += of_chunk[kSumY3];
      memory.sums[kSumY4][channel] += of_chunk[kSumY4];
      if (channel >= dim) continue;
      to[channel] = of_chunk[kSumY];
      to[dim + channel] = of_chunk[kSumY2];
    }
  }

  __device__ void store(const MomentMemory<Tile>& memory, const MomentArguments& a,
                        double* record) {
    const auto dim = a.record.dim;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      auto& s = sums_[c];
      float least = range_.least_of(c), largest = range_.largest_of(c);
      for (int distance = 8; distance <= 16; distance *= 2) {
        least = fminf(least, __shfl_xor_sync(kAllLanes, least, distance));
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
      }
      const double far3 = channel_sum(s.far3), far4 = channel_sum(s.far4);
      const int channel = channel_ + c;
      if (lane_ >= 8 || channel >= dim) continue;
      double* sums = record + a.record.sums() + channel;
      for (int i = 0; i < 6; ++i)
        sums[i * dim] = memory.sums[i][channel] + (i == kSumY3 ? far3 : i == kSumY4 ? far4 : 0.0);
      record[a.record.least() + channel] = least;
      record[a.record.largest() + channel] = largest;
    }
  }

 private:
  // Whether one of them is an outlier.
  template <bool kWhole>
  __device__ __forceinline__ bool add_rows(const char* tile, const TileWalk<Tile>& walk,
                                           float row_u) {
    const int rows = walk.rows();
    const auto begin = static_cast<float>(walk.offset + row_of(0));
    bool has_far = false;
#pragma unroll
    for (int i = 0; i < Tile::kRows / 4; ++i) {
      const int row = row_of(i);
      const float u = __shfl_sync(kAllLanes, row_u, row);
      if (!kWhole && row >= rows) continue;
      const float t = begin + static_cast<float>(i / 2 * 8 + i % 2);
      const auto pair = pair_at(tile, row);
      range_.add(pair);
#pragma unroll
      for (int c = 0; c < 2; ++c)
        has_far |= sums_[c].add(to_float(pair.values[c]), centre_[c], limit_[c], t, u);
    }
    return has_far;
  }

  __device__ __forceinline__ void add_far(const char* tile, int rows) {
    for (int i = 0; i < Tile::kRows / 4; ++i) {
      if (row_of(i) >= rows) continue;
      const auto pair = pair_at(tile, row_of(i));
      for (int c = 0; c < 2; ++c) sums_[c].add_far(to_float(pair.values[c]), centre_[c], limit_[c]);
    }
  }

  __device__ int row_of(int i) const {
    return i / 2 * 8 + lane_ / 8 * 2 + i % 2;
  }
  __device__ Pack<T, 2> pair_at(const char* tile, int row) const {
    return *reinterpret_cast<const Pack<T, 2>*>(at(tile, row));
  }
  template <typename Char>
  __device__ Char* at(Char* tile, int row) const {
    return tile + row * kPitch<Tile::kWidth> + channel_ * 2;
  }
  // u of the chunk's first row; the sums take what the others have beyond it.
  __device__ static float begin_u(std::int32_t position) {
    return log2f(static_cast<float>(position + 1));
  }

  int lane_;
  int channel_;
  float centre_[2] = {}, limit_[2] = {}, product_[2] = {};
  ChannelSums sums_[2];
  PairRange<T> range_;  // of the segment
};

// Lengths of rows and of rotary pairs; a warp takes every so many rows of a tile.
template <typename T, typename Tile>
class Lengths {
 public:
  __device__ Lengths(const MomentArguments& a)
      : lane_(threadIdx.x % 32),
        dim_(static_cast<int>(a.record.dim)),
        pairs_(static_cast<int>(a.record.pairs)),
        interleaved_(a.interleaved) {}

  __device__ void add(const char* tile) {
    const char* rows = tile + threadIdx.x / 32 * kWarpRows * kPitch<Tile::kWidth>;
    float squares[kWarpRows];  // rows beyond the chunk are zeros
    if (2 * pairs_ == Tile::kWidth && !interleaved_)
      add_pairs<true>(rows, squares);
    else if (pairs_ == 0)
      add_pairs<false>(rows, squares);
    else
      add_other_pairs(rows, squares);
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      const float norm = sqrt_fast(warp_sum(squares[i]));
      of_rows_ += norm;
      norm_max_ = fmaxf(norm_max_, norm);
    }
  }

  __device__ void end_chunk() {
#pragma unroll
    for (int j = 0; j < Tile::kLanePairs; ++j) {
      pair_totals_[j] += of_pairs_[j];
      of_pairs_[j] = 0;
    }
    total_ += of_rows_;
    of_rows_ = 0;
  }

  // All threads of the block.
  __device__ void store(MomentMemory<Tile>& memory, const MomentArguments& a, double* record) {
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int j = 0; j < Tile::kLanePairs; ++j)
      if (pair_of(j) < pairs_) memory.pairs[warp][pair_of(j)] = pair_totals_[j];
    if (lane_ == 0) {
      memory.norms[warp] = total_;
      memory.norm_max[warp] = norm_max_;
    }
    __syncthreads();
    const int thread = threadIdx.x;
    if (thread < pairs_) {
      double sum = 0;
      for (int i = 0; i < Tile::kWarps; ++i) sum += memory.pairs[i][thread];
      record[a.record.pair_abs() + thread] = sum;
    }
    if (thread != 0) return;
    double sum = 0;
    float largest = 0;
    for (int i = 0; i < Tile::kWarps; ++i) {
      sum += memory.norms[i];
      largest = fmaxf(largest, memory.norm_max[i]);
    }
    record[a.record.norm()] = sum;
    record[a.record.norm_max()] = largest;
  }

 private:
  static constexpr int kWarpRows = Tile::kRows / Tile::kWarps;
  static constexpr int kLanePairs = Tile::kLanePairs;

  // Lanes have consecutive pairs where all channels are in one, (i, i + kWidth / 2).
  __device__ int pair_of(int j) const {
    return 2 * pairs_ == Tile::kWidth && !interleaved_ ? lane_ * kLanePairs + j : lane_ + 32 * j;
  }

  // Channels lane * kLanePairs ... and those kWidth / 2 further on.
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

  // Pairs side by side, or only of some channels.
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

// products += the blocks of rows P and kBlocks - 1 - P of tile^T tile. The matrix units add with
// truncation: after 32 rows their sums go to sums that are rounded.
template <typename T, typename Tile, int P>
__device__ void multiply_rows(Products<Tile>& products, std::uint32_t tile, int half) {
  constexpr int kBlocks = Tile::kBlocks, Q = kBlocks - 1 - P, kPitchBytes = kPitch<Tile::kWidth>;
  const int lane = threadIdx.x % 32;
  const auto rows = tile + lane % 16 * kPitchBytes + lane / 16 * 16;
  const auto columns = tile + lane % 16 * kPitchBytes + lane / 16 * 32 + half * 16;
  Products<Tile> sums = {};
#pragma unroll
  for (int step = 0; step < Tile::kRows / 16; ++step) {
    // Loaded transposed, the matrices of 8 rows of the tile by 8 channels are, in order: rows 0-7,
    // rows 8-15; then the same of the next 8 channels.
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
__device__ void multiply_tile(Products<Tile>& products, std::uint32_t tile) {
  const int warp = threadIdx.x / 32;
  switch (warp / 2) {
    case 0:
      return multiply_rows<T, Tile, 0>(products, tile, warp % 2);
    case 1:
      return multiply_rows<T, Tile, 1>(products, tile, warp % 2);
    default:
      break;
  }
  if constexpr (Tile::kBlocks > 4) {
    if (warp / 2 == 2)
      multiply_rows<T, Tile, 2>(products, tile, warp % 2);
    else
      multiply_rows<T, Tile, 3>(products, tile, warp % 2);
  }
}

// Calls use(i, row, column) for each of this thread's products that lies in the triangle.
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

// The products of a tile of few rows, in float64: each thread its own, as each_product names them.
template <typename T, typename Tile>
__device__ void multiply_few(MomentMemory<Tile>& memory, const MomentArguments& a, int head,
                             const char* tile, int rows) {
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

template <typename T, typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, 2) moments_kernel(const MomentArguments a) {
  extern __shared__ __align__(16) char shared[];
  auto& memory = *reinterpret_cast<MomentMemory<Tile>*>(shared);
  const auto heads = static_cast<int>(a.heads);
  const int head = static_cast<int>(blockIdx.x) % heads;
  const int segment = static_cast<int>(blockIdx.x) / heads;
  const HeadRows<const std::uint16_t, true> rows{
      static_cast<const std::uint16_t*>(a.x) + head * a.record.dim, a.row_stride,
      static_cast<int>(a.record.dim)};
  for (auto& products : memory.products) products[threadIdx.x] = 0;
  for (auto& sums : memory.sums)
    for (int i = threadIdx.x; i < Tile::kWidth; i += Tile::kThreads) sums[i] = 0;

  TileWalk<Tile> ahead(a.chunks, a.segments[segment]);
  const auto load_ahead = [&](int stage) {
    if (ahead.exists()) {
      load_rows<Tile::kRows, Tile::kWidth, Tile::kThreads>(
          memory.tiles[stage], rows, ahead.chunk.row + ahead.offset, ahead.rows());
      ahead.next();
    }
    end_copy_group();  // an empty one too: they are counted
  };
  for (int stage = 0; stage < Tile::kStages - 1; ++stage) load_ahead(stage);

  Channels<T, Tile> channels(a, head);
  Lengths<T, Tile> lengths(a);
  Products<Tile> products = {};
  const bool shifted = __syncthreads_or(channels.shifts());
  int stage = 0;
  for (TileWalk<Tile> walk(a.chunks, a.segments[segment]); walk.exists(); walk.next()) {
    wait_for_copies_before<Tile::kStages - 2>();
    __syncthreads();  // the tile is there, and every warp is done with the one before
    load_ahead((stage + Tile::kStages - 1) % Tile::kStages);
    char* tile = memory.tiles[stage];
    stage = (stage + 1) % Tile::kStages;
    lengths.add(tile);
    if (walk.chunk.rows <= kFewRows) {
      channels.add_few(memory, a, head, tile, walk);
      lengths.end_chunk();
      multiply_few<T, Tile>(memory, a, head, tile, walk.rows());
      continue;
    }
    channels.add(tile, walk);
    if (shifted) {
      __syncthreads();
      channels.shift(tile, walk.rows());
      __syncthreads();
    }
    multiply_tile<T, Tile>(products, static_cast<std::uint32_t>(__cvta_generic_to_shared(tile)));
    if (!walk.ends_chunk()) continue;
    channels.end_chunk(memory, a, head, walk);
    lengths.end_chunk();
#pragma unroll
    for (int i = 0; i < 4 * (Tile::kBlocks + 1); ++i) {
      memory.products[i][threadIdx.x] += products[i / 4][i % 4];
      products[i / 4][i % 4] = 0;
    }
  }

  double* record = a.records + static_cast<std::int64_t>(blockIdx.x) * a.record.size();
  const auto dim = static_cast<int>(a.record.dim);
  each_product<Tile>(dim, [&](int i, int row, int column) {
    record[row * dim - row * (row - 1) / 2 + column - row] = memory.products[i][threadIdx.x];
  });
  channels.store(memory, a, record);
  lengths.store(memory, a, record);
}

template <typename T, int kWidth>
void launch(const MomentArguments& a, cudaStream_t stream) {
  using Tile = MomentTile<kWidth>;
  constexpr int kBytes = sizeof(MomentMemory<Tile>);
  const auto kernel = moments_kernel<T, Tile>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
        "moments: shared memory");
  kernel<<<static_cast<unsigned>(a.segment_count * a.heads), Tile::kThreads, kBytes, stream>>>(a);
  check_launch("moments");
}

template <typename T>
void launch_type(const MomentArguments& a, cudaStream_t stream) {
  if (a.record.dim <= 64)
    launch<T, 64>(a, stream);
  else
    launch<T, 128>(a, stream);
}

}  // namespace

bool moments_fit_matrix_units(const MomentArguments& a) {
  return (a.dtype == DType::bf16 || (a.dtype == DType::f16 && !a.bucket_covariance)) &&
         a.record.dim <= 128 && a.record.dim % 8 == 0 && a.row_stride % 8 == 0 &&
         reinterpret_cast<std::uintptr_t>(a.x) % 16 == 0 &&
         sizeof(MomentMemory<MomentTile<128>>) <= shared_memory_limit();
}

void sum_moments_16bit(const MomentArguments& a, cudaStream_t stream) {
  if (a.dtype == DType::bf16)
    launch_type<__nv_bfloat16>(a, stream);
  else
    launch_type<__half>(a, stream);
}

}  // namespace qkscope::cuda
