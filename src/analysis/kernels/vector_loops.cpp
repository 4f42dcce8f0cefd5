#include "analysis/kernels/vector_loops.h"

#include <algorithm>
#include <cmath>

#include "core/cpu_target.h"
#include "numerics/products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "analysis/kernels/vector_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Two = hn::CappedTag<double, 2>;

void squares_kernel(const Matrix& keys, std::span<const Pair> pairs, double* squares) {
  const Two d;
  const auto dim = keys.cols;
  // Two pairs at a time, so that their squares can be stored side by side.
  for (std::size_t p = 0; p < pairs.size(); p += 2) {
    const Pair& one = pairs[p];
    const Pair& two = pairs[std::min(p + 1, pairs.size() - 1)];
    const double* const x1 = keys.row(one.first);
    const double* const y1 = keys.row(one.second);
    const double* const x2 = keys.row(two.first);
    const double* const y2 = keys.row(two.second);
    double* const to = squares + p;
    std::int64_t j = 0;
    for (; j + 2 <= dim; j += 2) {
      const auto delta1 = hn::Sub(hn::LoadU(d, x1 + j), hn::LoadU(d, y1 + j));
      const auto delta2 = hn::Sub(hn::LoadU(d, x2 + j), hn::LoadU(d, y2 + j));
      const auto square1 = hn::Mul(delta1, delta1);
      const auto square2 = hn::Mul(delta2, delta2);
      hn::StoreU(hn::InterleaveLower(d, square1, square2), d, to + j * kPanelColumns);
      hn::StoreU(hn::InterleaveUpper(d, square1, square2), d, to + (j + 1) * kPanelColumns);
    }
    for (; j < dim; ++j) {
      to[j * kPanelColumns] = (x1[j] - y1[j]) * (x1[j] - y1[j]);
      to[j * kPanelColumns + 1] = (x2[j] - y2[j]) * (x2[j] - y2[j]);
    }
  }
}

void z_kernel(const ScoredPairs& scored, double* start, double* slope) {
  for (const Pair& pair : scored.pairs) {
    const double* const x = scored.scores.row(pair.first) + scored.first_column;
    const double* const y = scored.scores.row(pair.second) + scored.first_column;
    const double moves = scored.moves[static_cast<std::size_t>(pair.first)] -
                         scored.moves[static_cast<std::size_t>(pair.second)];
    for (std::int64_t c = 0; c < scored.columns; ++c) {
      const double spread = std::sqrt(start[c]);
      start[c] = spread > 0 ? (x[c] - y[c]) / spread : 0.0;
      slope[c] = spread > 0 ? moves / spread : 0.0;
    }
    start += scored.columns;
    slope += scored.columns;
  }
}

void unit_kernel(const double* xy, const double* shift, std::span<const std::uint32_t> place,
                 FourValues* to) {
  using Four = hn::CappedTag<double, 4>;
  constexpr int kLanes = hn::MaxLanes(Four());
  const Four d;
  for (std::size_t row = 0; row < place.size(); ++row, xy += 8) {
    FourValues& unit = to[place[row]];
#pragma GCC unroll 4
    for (int plane = 0; plane < 4; plane += kLanes) {
      const auto x = hn::Add(hn::LoadU(d, xy + plane), hn::LoadU(d, shift + plane));
      const auto y = hn::Add(hn::LoadU(d, xy + 4 + plane), hn::LoadU(d, shift + 4 + plane));
      const auto square = hn::MulAdd(x, x, hn::Mul(y, y));
      const auto inverse = hn::Div(hn::Set(d, 1), hn::Sqrt(square));
      const auto somewhere = hn::Gt(square, hn::Zero(d));
      hn::StoreU(hn::IfThenElse(somewhere, hn::Mul(x, inverse), hn::Set(d, 1)), d, unit.re + plane);
      hn::StoreU(hn::IfThenElse(somewhere, hn::Mul(y, inverse), hn::Zero(d)), d, unit.im + plane);
    }
  }
}

void turn_kernel(const TurnedLines& lines, double* out) {
  using Doubles = hn::CappedTag<double, TurnedLines::kLines>;
  constexpr int kLanes = hn::MaxLanes(Doubles());
  const Doubles d;
  const hn::Rebind<float, Doubles> floats;
  constexpr std::size_t kRows = 8;    // a cache line of every output line
  constexpr std::size_t kAhead = 32;  // rows; they come in an order that no hardware foresees
  const auto size = lines.order.size();
  for (std::size_t begin = 0; begin < size; begin += kRows) {
    const auto rows = std::min(kRows, size - begin);
    double block[kRows][TurnedLines::kLines];
    for (std::size_t i = 0; i < rows; ++i) {
      const float* x = lines.vectors + lines.order[begin + i] * lines.dim;
      __builtin_prefetch(lines.vectors +
                         lines.order[std::min(begin + i + kAhead, size - 1)] * lines.dim);
      float padded[TurnedLines::kLines] = {};
      if (lines.count < TurnedLines::kLines) x = std::copy_n(x, lines.count, padded) - lines.count;
      const auto reflected = hn::Set(d, lines.reflected[begin + i]);
#pragma GCC unroll 8
      for (int j = 0; j < TurnedLines::kLines; j += kLanes) {
        const auto off =
            hn::Sub(hn::PromoteTo(d, hn::LoadU(floats, x + j)), hn::LoadU(d, lines.mean + j));
        hn::StoreU(hn::NegMulAdd(reflected, hn::LoadU(d, lines.w + j),
                                 hn::Mul(hn::LoadU(d, lines.sign + j), off)),
                   d, block[i] + j);
      }
    }
    for (std::int64_t j = 0; j < lines.count; ++j)
      for (std::size_t i = 0; i < rows; ++i)
        out[static_cast<std::size_t>(j) * size + begin + i] = block[i][j];
  }
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

HWY_EXPORT(squares_kernel);
HWY_EXPORT(z_kernel);
HWY_EXPORT(unit_kernel);
HWY_EXPORT(turn_kernel);

}  // namespace

void squared_differences(const Matrix& keys, std::span<const Pair> pairs, double* squares) {
  QKSCOPE_DISPATCH(squares_kernel)(keys, pairs, squares);
}

void z_lines(const ScoredPairs& scored, double* start, double* slope) {
  QKSCOPE_DISPATCH(z_kernel)(scored, start, slope);
}

void unit_vectors(const double* xy, const double* shift, std::span<const std::uint32_t> place,
                  FourValues* to) {
  QKSCOPE_DISPATCH(unit_kernel)(xy, shift, place, to);
}

void turn_lines(const TurnedLines& lines, double* out) {
  QKSCOPE_DISPATCH(turn_kernel)(lines, out);
}

}  // namespace qkscope
#endif
