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

// The sum of running sums, in the order of vectors.h.
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

// Coordinates of one row, two in each vector.
struct TurnedRow {
  static constexpr int kVectors = TurnedLines::kLines / 2;
  hn::Vec<Two> v[kVectors];

  HWY_INLINE TurnedRow(const TurnedLines& lines, const float* x, double reflected) {
    const Two d;
    const hn::Rebind<float, Two> floats;
    const auto by = hn::Set(d, reflected);
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const auto off = hn::Sub(hn::PromoteTo(d, hn::LoadU(floats, x + 2 * i)),
                               hn::LoadU(d, lines.mean + 2 * i));
      v[i] = hn::NegMulAdd(by, hn::LoadU(d, lines.w + 2 * i),
                           hn::Mul(hn::LoadU(d, lines.sign + 2 * i), off));
    }
  }
};

// Two rows at a time, which change places with two coordinates in registers.
void turn_kernel(const TurnedLines& lines, std::int64_t stride, double* out) {
  constexpr std::size_t kAhead = 32;  // rows; they come in an order that no hardware foresees
  const Two d;
  const auto size = lines.order.size();
  float padded[2][TurnedLines::kLines] = {};
  const auto row = [&](std::size_t i, float* room) HWY_ATTR {
    const auto from = std::min(i, size - 1);
    const float* const x = lines.vectors + lines.order[from] * lines.dim;
    __builtin_prefetch(lines.vectors + lines.order[std::min(i + kAhead, size - 1)] * lines.dim);
    if (lines.count == TurnedLines::kLines) return TurnedRow(lines, x, lines.reflected[from]);
    std::copy_n(x, lines.count, room);
    return TurnedRow(lines, room, lines.reflected[from]);
  };
  for (std::size_t i = 0; i < size; i += 2) {
    const TurnedRow first = row(i, padded[0]);
    const TurnedRow second = row(i + 1, padded[1]);
    double* to = out + i;
#pragma GCC unroll 8
    for (int v = 0; v < TurnedRow::kVectors; ++v, to += 2 * stride) {
      hn::StoreU(hn::InterleaveLower(d, first.v[v], second.v[v]), d, to);
      hn::StoreU(hn::InterleaveUpper(d, first.v[v], second.v[v]), d, to + stride);
    }
  }
}

DriftSums drift_kernel(const DriftingLine& line) {
  constexpr int kSums = 8;  // of each kind: with more they would not stay in registers
  using Doubles = hn::CappedTag<double, kSums>;
  constexpr int kLanes = hn::MaxLanes(Doubles());
  constexpr int kVectors = kSums / kLanes;
  const Doubles d;
  hn::Vec<Doubles> sum[6][kVectors];
  for (auto& kind : sum)
    for (auto& part : kind) part = hn::Zero(d);
  const auto start = hn::Set(d, line.start);
  const auto drift = hn::Set(d, line.drift);
  const auto add = [&](double* x, const double* time) HWY_ATTR {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const auto off = hn::Sub(hn::LoadU(d, x + v * kLanes), start);
      const auto rest = hn::NegMulAdd(drift, hn::LoadU(d, time + v * kLanes), off);
      const auto square = hn::Mul(rest, rest);
      hn::StoreU(rest, d, x + v * kLanes);
      sum[0][v] = hn::Add(sum[0][v], off);
      sum[1][v] = hn::MulAdd(off, off, sum[1][v]);
      sum[2][v] = hn::Add(sum[2][v], rest);
      sum[3][v] = hn::Add(sum[3][v], square);
      sum[4][v] = hn::MulAdd(square, rest, sum[4][v]);
      sum[5][v] = hn::MulAdd(square, square, sum[5][v]);
    }
  };
  const auto count = line.values.size();
  std::size_t i = 0;
  for (; i + kSums <= count; i += kSums) add(line.values.data() + i, line.time.data() + i);
  if (i < count) {
    double values[kSums];
    double time[kSums] = {};
    std::fill_n(values, kSums, line.start);  // what is filled up adds 0 to every sum
    std::copy_n(line.values.data() + i, count - i, values);
    std::copy_n(line.time.data() + i, count - i, time);
    add(values, time);
    std::copy_n(values, count - i, line.values.data() + i);
  }
  return {total_of(d, sum[0]),
          total_of(d, sum[1]),
          {total_of(d, sum[2]), total_of(d, sum[3]), total_of(d, sum[4]), total_of(d, sum[5])}};
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
HWY_EXPORT(drift_kernel);

}  // namespace

void weighted_squares(const Matrix& keys, std::span<const Pair> pairs, const ColumnWeights& weights,
                      double* variance) {
  QKSCOPE_DISPATCH(squares_kernel)(keys, pairs, weights, variance);
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

void turn_lines(const TurnedLines& lines, std::int64_t stride, double* out) {
  QKSCOPE_DISPATCH(turn_kernel)(lines, stride, out);
}

DriftSums take_drift(const DriftingLine& line) {
  return QKSCOPE_DISPATCH(drift_kernel)(line);
}

}  // namespace qkscope
#endif
