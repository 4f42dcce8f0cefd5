// Kernels of gemm.h: c[i][j] (+)= sum over k of a[i][k] b[j][k], k ascending, one FMA per term.
//
// Layout: the left side is packed in panels (depth, kRows), the right side in panels
// (depth, kColumns); both are padded with zeros to whole panels. c is row-major with c_stride.
// Register tile: kRows x kColumns sums (8 x 3 vectors with AVX-512 and NEON, 4 x 3 with AVX2 and
// SSE4), one broadcast value of a and three vectors of b.
// Invariant: the sums of one tile never depend on another tile, so bits do not depend on rows or
// columns. Splitting the depth is left to the caller (depth_block_size).
// Reads stay inside whole packed panels. Full tiles are written directly; a tile at the edge is
// computed in a local buffer and only its valid part is copied, so nothing beyond c is touched.
// Reference: GemmBlocks in tests/engine/ops/gemm_test.cpp, a scalar chain of std::fma.
#include "engine/ops/gemm.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/core/clock.h"
#include "base/core/cpu_target.h"
#include "base/core/thread_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/ops/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::gemm::HWY_NAMESPACE {

using namespace qkscope::HWY_NAMESPACE;  // vector_math-inl.h

// Accumulators of a tile: 24 of 32 vector registers (AVX-512, NEON) or 12 of 16 (AVX2, SSE4).
constexpr int kVectors = 3;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
constexpr int kRows = 4;
#else
constexpr int kRows = 8;
#endif
constexpr int kLanes = static_cast<int>(kFloats);
constexpr int kColumns = kVectors * kLanes;

using LeftValues = BroadcastScalars<FloatTag, kRows>;

template <int row, int vectors>
HWY_INLINE void fma_row(const LeftValues& left, const FloatVector (&right)[vectors],
                        FloatVector (&sum)[kRows][vectors]) {
  const auto value = left.template get<row>();
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) sum[row][v] = hn::MulAdd(right[v], value, sum[row][v]);
}

template <int vectors, int... row>
HWY_INLINE void fma_rows(std::integer_sequence<int, row...>, const LeftValues& left,
                         const FloatVector (&right)[vectors], FloatVector (&sum)[kRows][vectors]) {
  (fma_row<row, vectors>(left, right, sum), ...);
}

// Computes the first `vectors` SIMD vectors of each row of c (kRows, kColumns) = aᵀ b; `add`: +=.
template <int vectors>
void multiply_full_tile(std::int64_t depth, const float* a, const float* b, bool add, float* c,
                        std::int64_t c_stride) {
  const FloatTag d;
  FloatVector sum[kRows][vectors];
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sum[row][v] = hn::Zero(d);
  for (std::int64_t k = 0; k < depth; ++k) {
    FloatVector right[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) right[v] = hn::LoadU(d, b + k * kColumns + v * kLanes);
    fma_rows(std::make_integer_sequence<int, kRows>(), LeftValues(a + k * kRows), right, sum);
  }
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      float* out = c + row * c_stride + v * kLanes;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, out), sum[row][v]) : sum[row][v], d, out);
    }
}

void multiply_edge_tile(const PackedOperands& p, bool add, float* c, std::int64_t c_stride) {
  float whole[kRows * kColumns] = {};
  const auto width = static_cast<std::size_t>(p.columns) * sizeof(float);
  for (std::int64_t row = 0; add && row < p.rows; ++row)
    std::memcpy(whole + row * kColumns, c + row * c_stride, width);
  multiply_full_tile<kVectors>(p.depth, p.left, p.right, add, whole, kColumns);
  for (std::int64_t row = 0; row < p.rows; ++row)
    std::memcpy(c + row * c_stride, whole + row * kColumns, width);
}

// Packs one full panel in blocks of 4 x 4 elements: packed[k][i] = source[i][k] for i < unit.
template <int unit>
void pack_panel(const float* source, std::int64_t stride, std::int64_t depth, float* packed) {
  static_assert(unit % 4 == 0);
  const hn::CappedTag<float, 4> four;
  hn::Vec<decltype(four)> block[4];
  std::int64_t k = 0;
  for (; k + 4 <= depth; k += 4)
    for (int i = 0; i < unit; i += 4) {
      for (int j = 0; j < 4; ++j) block[j] = hn::LoadU(four, source + (i + j) * stride + k);
      transpose(four, block);
      for (int j = 0; j < 4; ++j) hn::StoreU(block[j], four, packed + (k + j) * unit + i);
    }
  for (; k < depth; ++k)
    for (int i = 0; i < unit; ++i) packed[k * unit + i] = source[i * stride + k];
}

template <int unit>
void pack_transposed_panels(const StridedVectors& source, float* packed) {
  for (std::int64_t first = 0; first < source.count; first += unit) {
    const auto valid = std::min<std::int64_t>(unit, source.count - first);
    for (std::int64_t k = 0; k < source.depth; ++k, packed += unit) {
      const float* values = source.values + k * source.stride + first;
      if (valid == unit)
        std::memcpy(packed, values, unit * sizeof(float));
      else
        std::fill(std::copy_n(values, valid, packed), packed + unit, 0.0f);
    }
  }
}

// Packs vectors into panels of `unit` vectors; the last panel is padded with zeros.
template <int unit>
void pack_panels(const StridedVectors& source, float* packed) {
  const auto& [values, stride, count, depth, transposed] = source;
  if (transposed) return pack_transposed_panels<unit>(source, packed);
  std::int64_t first = 0;
  for (; first + unit <= count; first += unit, packed += unit * depth)
    pack_panel<unit>(values + first * stride, stride, depth, packed);
  if (first == count) return;
  std::fill_n(packed, unit * depth, 0.0f);
  for (std::int64_t i = 0; first + i < count; ++i)
    for (std::int64_t k = 0; k < depth; ++k)
      packed[k * unit + i] = values[(first + i) * stride + k];
}

TileShape tile_shape_kernel() {
  return {kRows, kColumns};
}

void pack_left_operand_kernel(const StridedVectors& rows, float* packed) {
  pack_panels<kRows>(rows, packed);
}

void pack_right_operand_kernel(const StridedVectors& columns, float* packed) {
  pack_panels<kColumns>(columns, packed);
}

// A left panel stays in the L1 cache while the right side streams from the L2 cache.
void multiply_kernel(const PackedOperands& p, bool add, float* c, std::int64_t c_stride) {
  for (std::int64_t row = 0; row < p.rows; row += kRows) {
    const float* a = p.left + row * p.left_depth;
    const auto rows = std::min<std::int64_t>(kRows, p.rows - row);
    for (std::int64_t column = 0; column < p.columns; column += kColumns) {
      const float* b = p.right + column * p.depth;
      const auto columns = std::min<std::int64_t>(kColumns, p.columns - column);
      float* out = c + row * c_stride + column;
      const bool whole = rows == kRows && columns == kColumns;
      if (whole && p.used - column > kLanes)
        multiply_full_tile<kVectors>(p.depth, a, b, add, out, c_stride);
      else if (whole)
        multiply_full_tile<1>(p.depth, a, b, add, out, c_stride);
      else
        multiply_edge_tile({a, b, rows, columns, p.depth}, add, out, c_stride);
    }
  }
}

}  // namespace qkscope::gemm::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope::gemm {

QKSCOPE_EXPORT_KERNEL(TileShape, tile_shape, (), ());
QKSCOPE_EXPORT_KERNEL(void, pack_left_operand, (const StridedVectors& rows, float* packed),
                      (rows, packed));
QKSCOPE_EXPORT_KERNEL(void, pack_right_operand, (const StridedVectors& columns, float* packed),
                      (columns, packed));
QKSCOPE_EXPORT_KERNEL(void, multiply,
                      (const PackedOperands& product, bool add, float* c, std::int64_t c_stride),
                      (product, add, c, c_stride));

namespace {

constexpr std::int64_t kRateDepth = 128;  // both sides of a tile fit into the L1 cache
constexpr int kTilesPerCheck = 1000;      // tiles between two clock reads

// Multiplies register tiles on one thread until time `end`; returns the number of tiles.
std::int64_t count_tiles_until(Clock::time_point end) {
  const auto tile = tile_shape();
  ScratchFloats memory;
  float* left = memory.reserve((tile.rows + tile.columns) * kRateDepth + tile.rows * tile.columns);
  float* right = left + tile.rows * kRateDepth;
  float* out = right + tile.columns * kRateDepth;
  std::fill_n(left, (tile.rows + tile.columns) * kRateDepth, 0.5f);
  std::int64_t count = 0;
  for (; Clock::now() < end; count += kTilesPerCheck)
    for (int i = 0; i < kTilesPerCheck; ++i)
      multiply({left, right, tile.rows, tile.columns, kRateDepth}, false, out, tile.columns);
  return count;
}

}  // namespace

double measure_peak_flop_rate(double seconds) {
  const auto start = Clock::now();
  const auto end =
      start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::atomic<std::int64_t> tiles = 0;
  parallel_for(thread_count(), [&](std::int64_t) { tiles += count_tiles_until(end); });
  const auto tile = tile_shape();
  const auto flop = 2.0 * static_cast<double>(tile.rows * tile.columns * kRateDepth);
  return static_cast<double>(tiles) * flop / seconds_since(start);
}

}  // namespace qkscope::gemm
#endif
