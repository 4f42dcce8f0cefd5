#include "analysis/kernels/vector_loops.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/cpu_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "analysis/kernels/vector_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void squares_kernel(const Matrix& keys, std::span<const Pair> pairs, double* squares) {
  using Doubles = hn::CappedTag<double, 8>;
  constexpr int kLanes = hn::MaxLanes(Doubles());
  const Doubles d;
  const auto dim = keys.cols;
  for (const Pair& pair : pairs) {
    const double* const x = keys.row(pair.first);
    const double* const y = keys.row(pair.second);
    std::int64_t j = 0;
    for (; j + 8 <= dim; j += 8)
#pragma GCC unroll 8
      for (int v = 0; v < 8; v += kLanes) {
        const auto delta = hn::Sub(hn::LoadU(d, x + j + v), hn::LoadU(d, y + j + v));
        hn::StoreU(hn::Mul(delta, delta), d, squares + j + v);
      }
    for (; j < dim; ++j) squares[j] = (x[j] - y[j]) * (x[j] - y[j]);
    squares += dim;
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

// The sum of sixteen running sums, in the order of vectors.h.
template <typename Doubles, int kVectors>
HWY_INLINE double total_of(Doubles d, const hn::Vec<Doubles> (&sums)[kVectors]) {
  constexpr int kLanes = hn::MaxLanes(Doubles());
  double part[kVectors * kLanes];
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, part + v * kLanes);
  for (int half = kVectors * kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) part[i] += part[i + half];
  return part[0];
}

// mean, sign and w (and room for a row) are filled up to whole sixteens.
void turn_rows_kernel(const TurnedRows& rows, double* room, double* out) {
  constexpr std::size_t kSums = 16;
  using Doubles = hn::CappedTag<double, kSums>;
  constexpr int kLanes = hn::MaxLanes(Doubles());
  constexpr int kVectors = kSums / kLanes;
  const Doubles d;
  const hn::Rebind<float, Doubles> floats;
  const auto padded = rows.mean.size();
  for (const auto row : rows.order) {
    const float* x = rows.vectors + static_cast<std::size_t>(row) * rows.dim;
    hn::Vec<Doubles> sums[kVectors];
    for (auto& part : sums) part = hn::Zero(d);
    for (std::size_t j = 0; j < padded; j += kSums, x += kSums) {
      float rest[kSums] = {};
      if (j + kSums > rows.dim) x = std::copy_n(x, rows.dim - j, rest) - (rows.dim - j);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const auto at = j + static_cast<std::size_t>(v * kLanes);
        const auto off = hn::Sub(hn::PromoteTo(d, hn::LoadU(floats, x + v * kLanes)),
                                 hn::LoadU(d, rows.mean.data() + at));
        const auto turned = hn::Mul(off, hn::LoadU(d, rows.sign.data() + at));
        hn::StoreU(turned, d, room + at);
        sums[v] = hn::MulAdd(turned, hn::LoadU(d, rows.w.data() + at), sums[v]);
      }
    }
    const auto by = hn::Set(d, -2 * total_of(d, sums));
    for (std::size_t j = 0; j < padded; j += kLanes) {
      const auto reflected =
          hn::MulAdd(by, hn::LoadU(d, rows.w.data() + j), hn::LoadU(d, room + j));
      hn::StoreU(reflected, d, room + j);
    }
    out = std::copy_n(room, rows.dim, out);
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
HWY_EXPORT(turn_rows_kernel);
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

void turn_rows(const TurnedRows& rows, double* out) {
  TurnedRows padded = rows;
  const auto size = (rows.dim + 15) / 16 * 16;
  const auto fill_up = [&](std::span<const double> values) {
    std::vector<double> full(values.begin(), values.end());
    full.resize(size);
    return full;
  };
  const auto mean = fill_up(rows.mean);
  const auto sign = fill_up(rows.sign);
  const auto w = fill_up(rows.w);
  padded.mean = mean;
  padded.sign = sign;
  padded.w = w;
  std::vector<double> room(size);
  QKSCOPE_DISPATCH(turn_rows_kernel)(padded, room.data(), out);
}

void turn_lines(const TurnedLines& lines, double* out) {
  QKSCOPE_DISPATCH(turn_kernel)(lines, out);
}

}  // namespace qkscope
#endif
