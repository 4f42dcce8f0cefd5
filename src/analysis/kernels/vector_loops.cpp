#include "analysis/kernels/vector_loops.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/cpu_target.h"
#include "numerics/products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "analysis/kernels/vector_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "numerics/counts-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// On Arm a multiply-add takes one number of a vector as it is: squares need not be stored to be
// spread over the columns.
constexpr bool kSquaresInRegisters = HWY_TARGET == HWY_NEON;

using Two = hn::CappedTag<double, 2>;

// variance (kPairs, columns), rows `stride` apart, for kWidth vectors of columns of which the first
// `columns` are wanted. Not inlined: in a larger function the compiler runs out of registers.
template <int kPairs, int kWidth>
HWY_NOINLINE void squares_tile(const Matrix& keys, const Pair* pairs, const ColumnWeights& weights,
                               double* variance, std::int64_t stride) {
  const Two d;
  using Vector = hn::Vec<Two>;
  const double* x[kPairs];
  const double* y[kPairs];
  Vector sum[kPairs][kWidth];
#pragma GCC unroll 8
  for (int p = 0; p < kPairs; ++p) {
    x[p] = keys.row(pairs[p].first);
    y[p] = keys.row(pairs[p].second);
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; ++v) sum[p][v] = hn::Zero(d);
  }
  const double* line = weights.first;
  const auto add = [&](const double* from, const auto& number) HWY_ATTR {
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; ++v) {
      const Vector by = hn::LoadU(d, from + 2 * v);
#pragma GCC unroll 8
      for (int p = 0; p < kPairs; ++p) sum[p][v] = hn::MulAdd(by, number(p), sum[p][v]);
    }
  };
  std::int64_t k = 0;
  for (; k + 2 <= keys.cols; k += 2, line += 2 * weights.stride) {
    Vector square[kPairs];
#pragma GCC unroll 8
    for (int p = 0; p < kPairs; ++p) {
      const Vector delta = hn::Sub(hn::LoadU(d, x[p] + k), hn::LoadU(d, y[p] + k));
      square[p] = hn::Mul(delta, delta);
    }
    add(line, [&](int p) HWY_ATTR { return hn::Broadcast<0>(square[p]); });
    add(line + weights.stride, [&](int p) HWY_ATTR { return hn::Broadcast<1>(square[p]); });
  }
  if (k < keys.cols)
    add(line,
        [&](int p) HWY_ATTR { return hn::Set(d, (x[p][k] - y[p][k]) * (x[p][k] - y[p][k])); });
#pragma GCC unroll 8
  for (int p = 0; p < kPairs; ++p) {
    double all[2 * kWidth];
#pragma GCC unroll 4
    for (int v = 0; v < kWidth; ++v) hn::StoreU(sum[p][v], d, all + 2 * v);
    std::copy_n(all, weights.columns, variance + p * stride);
  }
}

void squares_in_registers(const Matrix& keys, std::span<const Pair> pairs,
                          const ColumnWeights& weights, double* variance) {
  constexpr std::int64_t kColumns = 8;  // of a tile, at most
  for (std::int64_t column = 0; column < weights.columns; column += kColumns) {
    const ColumnWeights strip{weights.first + column, weights.stride,
                              std::min(kColumns, weights.columns - column)};
    with_count<4>((strip.columns + 1) / 2, [&](auto width) HWY_ATTR {
      // As many sums as the registers hold beside the squares and a line.
      constexpr int kPairs = width > 2 ? 20 / width - 1 : 8;
      for (std::int64_t p = 0; p < std::ssize(pairs); p += kPairs)
        with_count<kPairs>(std::ssize(pairs) - p, [&](auto count) HWY_ATTR {
          squares_tile<count, width>(keys, pairs.data() + p, strip,
                                     variance + p * weights.columns + column, weights.columns);
        });
    });
  }
}

// Squares of a few pairs stay in the first cache until they are summed.
[[maybe_unused]] void squares_in_memory(const Matrix& keys, std::span<const Pair> pairs,
                                        const ColumnWeights& weights, double* variance) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto dim = keys.cols;
  constexpr std::size_t kTogether = 16;
  std::vector<double> squares(kTogether * static_cast<std::size_t>(dim));
  for (std::size_t first = 0; first < pairs.size(); first += kTogether) {
    const auto part = pairs.subspan(first, std::min(kTogether, pairs.size() - first));
    double* to = squares.data();
    for (const Pair& pair : part) {
      const double* const x = keys.row(pair.first);
      const double* const y = keys.row(pair.second);
      std::int64_t j = 0;
      for (; j + lanes <= dim; j += lanes) {
        const auto delta = hn::Sub(hn::LoadU(d, x + j), hn::LoadU(d, y + j));
        hn::StoreU(hn::Mul(delta, delta), d, to + j);
      }
      for (; j < dim; ++j) to[j] = (x[j] - y[j]) * (x[j] - y[j]);
      to += dim;
    }
    multiply_narrow(squares.data(), std::ssize(part), dim, weights.first, weights.stride,
                    weights.columns, variance + static_cast<std::int64_t>(first) * weights.columns);
  }
}

void squares_kernel(const Matrix& keys, std::span<const Pair> pairs, const ColumnWeights& weights,
                    double* variance) {
  if constexpr (kSquaresInRegisters)
    squares_in_registers(keys, pairs, weights, variance);
  else
    squares_in_memory(keys, pairs, weights, variance);
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

// Of kRows rows, side by side: none waits for a division of another.
template <int kRows>
HWY_INLINE void write_units(const double* xy, const std::uint32_t* place, std::complex<double>* to,
                            std::int64_t stride) {
  const Two d;
  constexpr int kPairs = 2 * kRows;  // of planes
  const auto from = [&](int pair) { return xy + 8 * (pair / 2) + 2 * (pair % 2); };
  hn::Vec<Two> square[kPairs];
  hn::Vec<Two> inverse[kPairs];
#pragma GCC unroll 8
  for (int pair = 0; pair < kPairs; ++pair) {
    const auto x = hn::LoadU(d, from(pair));
    const auto y = hn::LoadU(d, from(pair) + 4);
    square[pair] = hn::MulAdd(x, x, hn::Mul(y, y));
  }
#pragma GCC unroll 8
  for (int pair = 0; pair < kPairs; ++pair)
    inverse[pair] = hn::Div(hn::Set(d, 1), hn::Sqrt(square[pair]));
#pragma GCC unroll 8
  for (int pair = 0; pair < kPairs; ++pair) {
    const auto x = hn::Mul(hn::LoadU(d, from(pair)), inverse[pair]);
    const auto y = hn::Mul(hn::LoadU(d, from(pair) + 4), inverse[pair]);
    const auto somewhere = hn::Gt(square[pair], hn::Zero(d));
    const auto re = hn::IfThenElse(somewhere, x, hn::Set(d, 1));
    const auto im = hn::IfThenElseZero(somewhere, y);
    double* const unit = reinterpret_cast<double*>(to + pair % 2 * 2 * stride + place[pair / 2]);
    hn::StoreU(hn::InterleaveLower(d, re, im), d, unit);
    hn::StoreU(hn::InterleaveUpper(d, re, im), d, unit + 2 * stride);
  }
}

void unit_kernel(const double* xy, std::span<const std::uint32_t> place, std::complex<double>* to,
                 std::int64_t stride) {
  constexpr std::size_t kTogether = 3;
  std::size_t row = 0;
  for (; row + kTogether <= place.size(); row += kTogether)
    write_units<kTogether>(xy + 8 * row, place.data() + row, to, stride);
  for (; row < place.size(); ++row) write_units<1>(xy + 8 * row, place.data() + row, to, stride);
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

void weighted_squares(const Matrix& keys, std::span<const Pair> pairs, const ColumnWeights& weights,
                      double* variance) {
  QKSCOPE_DISPATCH(squares_kernel)(keys, pairs, weights, variance);
}

void z_lines(const ScoredPairs& scored, double* start, double* slope) {
  QKSCOPE_DISPATCH(z_kernel)(scored, start, slope);
}

void unit_vectors(const double* xy, std::span<const std::uint32_t> place, std::complex<double>* to,
                  std::int64_t stride) {
  QKSCOPE_DISPATCH(unit_kernel)(xy, place, to, stride);
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
