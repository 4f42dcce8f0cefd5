// Kernels of gemv::multiply in gemm.h: y[r][o] = sum over ascending k of x[r][k] w[o][k], by FMA.
//
// Layout: x (rows, in) contiguous; weights (out, in) as stored, float32, float16 or bfloat16; y
// (rows, out) with y_stride. Other storage is converted to float32 group by group.
// Register tile: up to 4 rows x kTile outputs; each vector holds four outputs, and weights are
// transposed 4 x 4 in registers. 5 to 8 rows need two passes over the tile in cache.
// Invariant: sums are split at gemm::depth_block_size as in gemm.h, so results of gemm and gemv are
// bit-identical.
// Reads stay inside the weights: a tile with fewer than kTile outputs repeats its last weight row.
// Results go through a local buffer. Prefetches beyond the matrix are safe: they never
// fault. Reference: tests/engine/ops/gemv_test.cpp compares with the packed product row by row.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/core/convert.h"
#include "base/core/cpu_target.h"
#include "engine/ops/gemm.h"
#include "engine/ops/linear.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/gemv.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "engine/ops/vector_math-inl.h"

#ifndef QKSCOPE_OPS_GEMV_PART
#define QKSCOPE_OPS_GEMV_PART
namespace qkscope::gemv {

// Outputs per tile: enough sums to hide the FMA latency, but few concurrent weight streams.
constexpr std::int64_t kTile = 8;

// Operands of one register tile: kTile outputs over one depth block.
struct TileOperands {
  const float* x;  // (rows, x_stride), starting at the depth block
  std::int64_t x_stride;
  DType dtype;                      // of the weights: f32, f16 or bf16
  const std::byte* weights[kTile];  // weights of each output, starting at the depth block
  const std::byte* prefetch;  // weights to prefetch, as many bytes as this tile reads; null: none
  std::int64_t depth;
  bool add;  // add to y instead of overwriting it
  float* y;  // (rows, kTile)
};

}  // namespace qkscope::gemv
#endif

HWY_BEFORE_NAMESPACE();
namespace qkscope::gemv::HWY_NAMESPACE {

using namespace qkscope::HWY_NAMESPACE;  // vector_math-inl.h

// Vectors hold four outputs: wider vectors do not read weights from memory any faster.
using FourFloats = hn::CappedTag<float, 4>;
using FourWords = hn::CappedTag<std::uint32_t, 4>;
using Vector = hn::Vec<FourFloats>;
constexpr std::int64_t kCacheLine = 64;  // bytes

HWY_INLINE Vector load_four_weights(const float* from) {
  return hn::LoadU(FourFloats(), from);
}
HWY_INLINE Vector load_four_weights(const Fp16* from) {
  const hn::Rebind<hwy::float16_t, FourFloats> halves;
  return hn::PromoteTo(FourFloats(),
                       hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(from)));
}

// Loads weights k to k + kStep - 1 of four outputs; columns[i] holds weight k + i of each output.
template <typename T>
struct WeightColumns {
  static constexpr int kStep = 4;
  static HWY_INLINE void load(const T* const* weights, std::int64_t k, Vector (&columns)[4]) {
    for (int i = 0; i < 4; ++i) columns[i] = load_four_weights(weights[i] + k);
    transpose(FourFloats(), columns);
  }
};

// bfloat16 is the upper half of float32: pairs are transposed as 32-bit words, then split.
template <>
struct WeightColumns<Bf16> {
  static constexpr int kStep = 8;
  static HWY_INLINE void load(const Bf16* const* weights, std::int64_t k, Vector (&columns)[8]) {
    const FourWords words;
    hn::Vec<FourWords> pairs[4];
    for (int i = 0; i < 4; ++i)
      pairs[i] =
          hn::BitCast(words, hn::LoadU(hn::Repartition<std::uint16_t, FourWords>(),
                                       reinterpret_cast<const std::uint16_t*>(weights[i] + k)));
    transpose(words, pairs);
    for (int i = 0; i < 4; ++i) {
      columns[2 * i] = hn::BitCast(FourFloats(), hn::ShiftLeft<16>(pairs[i]));
      columns[2 * i + 1] =
          hn::BitCast(FourFloats(), hn::And(pairs[i], hn::Set(words, std::uint32_t{0xffff0000})));
    }
  }
};

template <int kStep, int... i>
HWY_INLINE Vector add_weighted_columns(std::integer_sequence<int, i...>,
                                       const Vector (&columns)[kStep], const float* x, Vector sum) {
  const BroadcastScalars<FourFloats, kStep> values(x);
  ((sum = hn::MulAdd(columns[i], values.template get<i>(), sum)), ...);
  return sum;
}

HWY_INLINE float widen_to_float(float value) {
  return value;
}
template <typename T>
HWY_INLINE float widen_to_float(T value) {
  return to_float(value);
}

// Computes one tile for kRows rows of x; sums stay in registers over the whole depth block.
template <typename T, int kRows>
void multiply_tile(const TileOperands& p) {
  const FourFloats d;
  const T* weights[kTile];
  for (int i = 0; i < kTile; ++i) weights[i] = reinterpret_cast<const T*>(p.weights[i]);
  constexpr int kFours = kTile / 4;
  constexpr int kStep = WeightColumns<T>::kStep;
  constexpr std::int64_t kStepBytes = kTile * kStep * static_cast<std::int64_t>(sizeof(T));
  Vector sum[kRows][kFours];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row)
#pragma GCC unroll 8
    for (int f = 0; f < kFours; ++f) sum[row][f] = hn::Zero(d);
  const auto steps = p.depth / kStep;
  for (std::int64_t k = 0; k < steps * kStep; k += kStep) {
    if (p.prefetch != nullptr)
      for (std::int64_t byte = 0; byte < kStepBytes; byte += kCacheLine)
        __builtin_prefetch(p.prefetch + k / kStep * kStepBytes + byte, /*write=*/0, /*to L2=*/2);
#pragma GCC unroll 8
    for (int f = 0; f < kFours; ++f) {
      Vector columns[kStep];
      WeightColumns<T>::load(weights + 4 * f, k, columns);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row)
        sum[row][f] = add_weighted_columns(std::make_integer_sequence<int, kStep>(), columns,
                                           p.x + row * p.x_stride + k, sum[row][f]);
    }
  }
  for (auto k = steps * kStep; k < p.depth; ++k) {
#pragma GCC unroll 8
    for (int f = 0; f < kFours; ++f) {
      float column[4];
      for (int i = 0; i < 4; ++i) column[i] = widen_to_float(weights[4 * f + i][k]);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row)
        sum[row][f] =
            hn::MulAdd(hn::LoadU(d, column), hn::Set(d, p.x[row * p.x_stride + k]), sum[row][f]);
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int f = 0; f < kFours; ++f) {
      float* y = p.y + row * kTile + 4 * f;
      hn::StoreU(p.add ? hn::Add(hn::LoadU(d, y), sum[row][f]) : sum[row][f], d, y);
    }
  }
}

template <typename T>
void multiply_rows(TileOperands tile, std::int64_t rows) {
  for (; rows >= 4; rows -= 4) {
    multiply_tile<T, 4>(tile);
    tile.x += 4 * tile.x_stride;
    tile.y += 4 * kTile;
    tile.prefetch = nullptr;
  }
  if (rows == 3) multiply_tile<T, 3>(tile);
  if (rows == 2) multiply_tile<T, 2>(tile);
  if (rows == 1) multiply_tile<T, 1>(tile);
}

void multiply_tile_kernel(const TileOperands& tile, std::int64_t rows) {
  if (tile.dtype == DType::f32)
    multiply_rows<float>(tile, rows);
  else if (tile.dtype == DType::bf16)
    multiply_rows<Bf16>(tile, rows);
  else
    multiply_rows<Fp16>(tile, rows);
}

}  // namespace qkscope::gemv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope::gemv {

HWY_EXPORT(multiply_tile_kernel);

namespace {

// L2 prefetch distance: weight rows are too short for the hardware prefetcher.
constexpr std::int64_t kPrefetchBytes = std::int64_t{64} << 10;  // bytes

// Results of a tile, for outputs [first, first + count). A tile with fewer than kTile outputs is
// computed in full, with repeated weights.
struct TileOutput {
  std::int64_t first;
  std::int64_t count;
  float y[kMostRows * kTile];

  void copy_to(const GemvOperands& product) const {
    for (std::int64_t row = 0; row < product.rows; ++row)
      std::copy_n(y + row * kTile, count, product.y + row * product.y_stride + first);
  }
};

// Multiplies inputs [k, k + depth) by the weights of a tile; weights_of(i): those of output i.
template <typename WeightsOf>
void multiply_block(const GemvOperands& product, TileOutput& output, DType dtype, std::int64_t k,
                    std::int64_t depth, const std::byte* prefetch, WeightsOf weights_of) {
  TileOperands tile{.x = product.x + k,
                    .x_stride = product.weight.in(),
                    .dtype = dtype,
                    .weights = {},
                    .prefetch = prefetch,
                    .depth = depth,
                    .add = k > 0,
                    .y = output.y};
  for (std::int64_t i = 0; i < kTile; ++i) tile.weights[i] = weights_of(i);
  QKSCOPE_DISPATCH(multiply_tile_kernel)(tile, product.rows);
}

// Computes a tile of outputs from weights in their stored type. `rest`: number of later outputs.
void multiply_stored_weights(const GemvOperands& product, std::int64_t first, std::int64_t count,
                             std::int64_t rest) {
  const auto& weight = product.weight;
  const auto dtype = weight.values.dtype();
  const auto size = static_cast<std::int64_t>(dtype_size(dtype));
  const auto row = [&](std::int64_t output, std::int64_t k) {
    return weight.values.bytes() + (weight.row_offset(output) + k) * size;
  };
  const bool prefetches = rest * weight.in() * size >= kPrefetchBytes;
  TileOutput output{.first = first, .count = count, .y = {}};
  gemm::for_each_depth_block(weight.in(), [&](std::int64_t k, std::int64_t depth) {
    const auto* prefetch = prefetches ? row(first, 0) + kPrefetchBytes + kTile * k * size : nullptr;
    multiply_block(product, output, dtype, k, depth, prefetch,
                   [&](std::int64_t i) { return row(first + std::min(i, count - 1), k); });
  });
  output.copy_to(product);
}

// Computes up to kGroup outputs from converted weights: FP8, MXFP4, scaled, or stored as (in, out).
void multiply_converted_weights(const GemvOperands& product, std::int64_t first,
                                std::int64_t count) {
  thread_local ScratchFloats memory;
  std::vector<TileOutput> outputs;
  for (std::int64_t done = 0; done < count; done += kTile)
    outputs.push_back({.first = first + done, .count = std::min(kTile, count - done), .y = {}});
  gemm::for_each_depth_block(product.weight.in(), [&](std::int64_t k, std::int64_t depth) {
    float* widened = memory.reserve(kGroup * depth);
    weights_to_float32(product.weight, {first, count, k, depth}, widened);
    for (std::size_t t = 0; t < outputs.size(); ++t)
      multiply_block(product, outputs[t], DType::f32, k, depth, nullptr, [&](std::int64_t i) {
        const auto output = std::min(static_cast<std::int64_t>(t) * kTile + i, count - 1);
        return reinterpret_cast<const std::byte*>(widened + output * depth);
      });
  });
  for (const auto& output : outputs) output.copy_to(product);
}

}  // namespace

void multiply(const GemvOperands& product, std::int64_t first, std::int64_t count) {
  const auto& weight = product.weight;
  const auto dtype = weight.values.dtype();
  const bool stored = weight.scale == 1.0f && !weight.transposed() &&
                      (dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16);
  const auto step = stored ? kTile : kGroup;
  for (std::int64_t done = 0; done < count; done += step) {
    const auto outputs = std::min(step, count - done);
    if (stored)
      multiply_stored_weights(product, first + done, outputs, count - done - outputs);
    else
      multiply_converted_weights(product, first + done, outputs);
  }
}

}  // namespace qkscope::gemv
#endif
