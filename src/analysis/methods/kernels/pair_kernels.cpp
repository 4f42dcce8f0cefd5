#include "analysis/methods/kernels/pair_kernels.h"

#include <cmath>

#include "base/core/cpu_target.h"
#include "base/numerics/products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "analysis/methods/kernels/pair_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/numerics/counts-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// On Arm a multiply-add takes one number of a vector as it is: squares need not be stored to be
// spread over the columns.
constexpr bool kSquaresInRegisters = HWY_TARGET == HWY_NEON;

using Two = hn::CappedTag<double, 2>;

// Scores (key . mean query) of the two keys of a pair.
struct PairScores {
  const double* x;  // at the first column
  const double* y;

  HWY_INLINE PairScores(const PairModel& model, const Pair& pair, std::int64_t column)
      : x(model.scores.row(pair.first - model.keys.first) + column),
        y(model.scores.row(pair.second - model.keys.first) + column) {}

  // z = score difference / sqrt(variance), 0 where the variance is 0.
  template <typename D>
  HWY_INLINE void store_z(D d, hn::Vec<D> variance, std::int64_t at, double* z) const {
    const auto apart = hn::Sub(hn::LoadU(d, x + at), hn::LoadU(d, y + at));
    hn::StoreU(
        hn::IfThenElseZero(hn::Gt(variance, hn::Zero(d)), hn::Div(apart, hn::Sqrt(variance))), d,
        z + at);
  }
};

// Of the differences of pairs, in two coordinates.
template <int kPairs>
struct PairSquares {
  hn::Vec<Two> v[kPairs];

  HWY_INLINE PairSquares() {}  // not the compiler's: GCC makes that for the lowest target
};

// kWidth vectors of columns from `column` on, which are the first of start (kPairs, stride). Not
// inlined: in a larger function the compiler runs out of registers.
template <int kPairs, int kWidth>
HWY_NOINLINE void z_tile(const PairModel& model, const Pair* pairs, std::int64_t column,
                         std::int64_t stride, double* z) {
  const Two d;
  using Vector = hn::Vec<Two>;
  const double* x[kPairs];
  const double* y[kPairs];
  Vector sum[kPairs][kWidth];
#pragma GCC unroll 8
  for (int p = 0; p < kPairs; ++p) {
    x[p] = model.keys.row(pairs[p].first);
    y[p] = model.keys.row(pairs[p].second);
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) sum[p][v] = hn::Zero(d);
  }
  const auto dim = model.keys.dim;
  const double* line = model.variances.row(0) + column;
  const auto add = [&](const double* from, const auto& number) HWY_ATTR {
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) {
      const Vector by = hn::LoadU(d, from + 2 * v);
#pragma GCC unroll 8
      for (int p = 0; p < kPairs; ++p) sum[p][v] = hn::MulAdd(by, number(p), sum[p][v]);
    }
  };
  using Squares = PairSquares<kPairs>;
  const auto squares_at = [&](std::int64_t k) HWY_ATTR {
    Squares result;
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p) {
      const Vector delta = hn::Sub(hn::LoadU(d, x[p] + k), hn::LoadU(d, y[p] + k));
      result.v[p] = hn::Mul(delta, delta);
    }
    return result;
  };
  const auto add_squares = [&](const Squares& square) HWY_ATTR {
    add(line, [&](int p) HWY_ATTR { return hn::Broadcast<0>(square.v[p]); });
    add(line + model.variances.cols, [&](int p) HWY_ATTR { return hn::Broadcast<1>(square.v[p]); });
    line += 2 * model.variances.cols;
  };
  std::int64_t k = 0;
  if (dim >= 2) {
    // Those of the next coordinates are under way while these are added.
    Squares now = squares_at(0);
    for (; k + 4 <= dim; k += 2) {
      const Squares next = squares_at(k + 2);
      add_squares(now);
      now = next;
    }
    add_squares(now);
    k += 2;
  }
  if (k < dim)
    add(line,
        [&](int p) HWY_ATTR { return hn::Set(d, (x[p][k] - y[p][k]) * (x[p][k] - y[p][k])); });
#pragma GCC unroll 8
  for (int p = 0; p < kPairs; ++p) {
    const PairScores scores(model, pairs[p], column);
#pragma GCC unroll 8
    for (int v = 0; v < kWidth; ++v) scores.store_z(d, sum[p][v], 2 * v, z + p * stride);
  }
}

// As many pairs as leave their sums in registers, kWidth vectors of columns each.
template <int kWidth>
constexpr int pairs_in_registers() {
  constexpr int kPairs[] = {8, 8, 6, 3, 3, 2, 2, 2};
  return kPairs[kWidth - 1];
}

void z_in_registers(const PairModel& model, const Pair* pairs, const PairTile& tile, double* z) {
  for (std::int64_t at = 0; at < tile.stride; at += kTileColumns)
    with_count<kTileColumns / 2>((tile.stride - at) / 2, [&](auto width) HWY_ATTR {
      constexpr int kPairs = pairs_in_registers<width>();
      for (std::int64_t p = 0; p < tile.count; p += kPairs)
        with_count<kPairs>(tile.count - p, [&](auto count) HWY_ATTR {
          z_tile<count, width>(model, pairs + p, tile.column + at, tile.stride,
                               z + p * tile.stride + at);
        });
    });
}

// The squares stay in the first cache until they are summed.
[[maybe_unused]] void z_in_memory(const PairModel& model, const Pair* pairs, const PairTile& tile,
                                  double* squares, double* z) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto dim = model.keys.dim;
  for (std::int64_t p = 0; p < tile.count; ++p) {
    const double* const x = model.keys.row(pairs[p].first);
    const double* const y = model.keys.row(pairs[p].second);
    double* const to = squares + p * dim;
    std::int64_t j = 0;
    for (; j + lanes <= dim; j += lanes) {
      const auto delta = hn::Sub(hn::LoadU(d, x + j), hn::LoadU(d, y + j));
      hn::StoreU(hn::Mul(delta, delta), d, to + j);
    }
    for (; j < dim; ++j) to[j] = (x[j] - y[j]) * (x[j] - y[j]);
  }
  multiply_narrow(squares, tile.count, dim, model.variances.row(0) + tile.column,
                  model.variances.cols, tile.stride, z);
  for (std::int64_t p = 0; p < tile.count; ++p) {
    const PairScores scores(model, pairs[p], tile.column);
    double* const to = z + p * tile.stride;
    std::int64_t at = 0;
    for (; at + lanes <= tile.stride; at += lanes) scores.store_z(d, hn::LoadU(d, to + at), at, to);
    for (; at < tile.stride; at += 2) scores.store_z(Two(), hn::LoadU(Two(), to + at), at, to);
  }
}

void z_kernel(const PairModel& model, std::span<const Pair> pairs, std::span<const PairTile> tiles,
              double* z) {
  LineVector<double> squares;
  if constexpr (!kSquaresInRegisters)
    squares.resize(static_cast<std::size_t>(kTilePairs * model.keys.dim));
  for (const PairTile& tile : tiles) {
    const Pair* const first = pairs.data() + tile.first;
    if constexpr (kSquaresInRegisters)
      z_in_registers(model, first, tile, z + tile.offset);
    else
      z_in_memory(model, first, tile, squares.data(), z + tile.offset);
  }
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

HWY_EXPORT(z_kernel);

}  // namespace

void z_scores(const PairModel& model, std::span<const Pair> pairs, std::span<const PairTile> tiles,
              double* z) {
  QKSCOPE_DISPATCH(z_kernel)(model, pairs, tiles, z);
}

void z_scores_reference(const PairModel& model, std::span<const Pair> pairs,
                        std::span<const PairTile> tiles, double* z) {
  for (const PairTile& tile : tiles)
    for (std::int64_t p = 0; p < tile.count; ++p) {
      const Pair& pair = pairs[static_cast<std::size_t>(tile.first + p)];
      const double* const x = model.keys.row(pair.first);
      const double* const y = model.keys.row(pair.second);
      for (std::int64_t c = 0; c < tile.stride; ++c) {
        const auto column = tile.column + c;
        double variance = 0;
        for (std::int64_t j = 0; j < model.keys.dim; ++j)
          variance += model.variances(j, column) * (x[j] - y[j]) * (x[j] - y[j]);
        const double mean = model.scores(pair.first - model.keys.first, column) -
                            model.scores(pair.second - model.keys.first, column);
        z[tile.offset + p * tile.stride + c] = variance > 0 ? mean / std::sqrt(variance) : 0;
      }
    }
}

}  // namespace qkscope
#endif
