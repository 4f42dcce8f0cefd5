#include "analysis/methods/kernels/vector_loops.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/core/cpu_target.h"
#include "base/numerics/products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "analysis/kernels/vector_loops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/numerics/counts-inl.h"
#include "base/numerics/running_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// On Arm a multiply-add takes one number of a vector as it is: squares need not be stored to be
// spread over the columns.
constexpr bool kSquaresInRegisters = HWY_TARGET == HWY_NEON;

using Two = hn::CappedTag<double, 2>;

// A row of variances becomes z and its slope; equal keys (variance 0) leave the query no
// preference.
struct PairScores {
  const double* x;  // scores of both keys, at the first column
  const double* y;
  double moves;

  HWY_INLINE PairScores(const PairModel& model, const Pair& pair, std::int64_t column)
      : x(model.scores.row(pair.first - model.keys.first) + column),
        y(model.scores.row(pair.second - model.keys.first) + column),
        moves(model.moves[static_cast<std::size_t>(pair.first - model.keys.first)] -
              model.moves[static_cast<std::size_t>(pair.second - model.keys.first)]) {}

  template <typename D>
  HWY_INLINE void take(D d, hn::Vec<D> variance, std::int64_t at, double* start,
                       double* slope) const {
    const auto inverse = hn::IfThenElseZero(hn::Gt(variance, hn::Zero(d)),
                                            hn::Div(hn::Set(d, 1), hn::Sqrt(variance)));
    const auto apart = hn::Sub(hn::LoadU(d, x + at), hn::LoadU(d, y + at));
    hn::StoreU(hn::Mul(apart, inverse), d, start + at);
    if (slope != nullptr) hn::StoreU(hn::Mul(hn::Set(d, moves), inverse), d, slope + at);
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
                         std::int64_t stride, double* start, double* slope) {
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
  const auto dim = model.keys.vectors.cols;
  const double* line = model.weights.row(0) + column;
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
    add(line + model.weights.cols, [&](int p) HWY_ATTR { return hn::Broadcast<1>(square.v[p]); });
    line += 2 * model.weights.cols;
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
    for (int v = 0; v < kWidth; ++v)
      scores.take(d, sum[p][v], 2 * v, start + p * stride,
                  slope == nullptr ? nullptr : slope + p * stride);
  }
}

// As many pairs as leave their sums in registers, kWidth vectors of columns each.
template <int kWidth>
constexpr int pairs_in_registers() {
  constexpr int kPairs[] = {8, 8, 6, 3, 3, 2, 2, 2};
  return kPairs[kWidth - 1];
}

void z_in_registers(const PairModel& model, const Pair* pairs, const PairTile& tile, double* start,
                    double* slope) {
  for (std::int64_t at = 0; at < tile.stride; at += kTileColumns)
    with_count<kTileColumns / 2>((tile.stride - at) / 2, [&](auto width) HWY_ATTR {
      constexpr int kPairs = pairs_in_registers<width>();
      for (std::int64_t p = 0; p < tile.count; p += kPairs)
        with_count<kPairs>(tile.count - p, [&](auto count) HWY_ATTR {
          const auto to = p * tile.stride + at;
          z_tile<count, width>(model, pairs + p, tile.column + at, tile.stride, start + to,
                               slope == nullptr ? nullptr : slope + to);
        });
    });
}

// The squares stay in the first cache until they are summed.
[[maybe_unused]] void z_in_memory(const PairModel& model, const Pair* pairs, const PairTile& tile,
                                  double* squares, double* start, double* slope) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto dim = model.keys.vectors.cols;
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
  multiply_narrow(squares, tile.count, dim, model.weights.row(0) + tile.column, model.weights.cols,
                  tile.stride, start);
  for (std::int64_t p = 0; p < tile.count; ++p) {
    const PairScores scores(model, pairs[p], tile.column);
    double* const to = start + p * tile.stride;
    double* const slopes = slope == nullptr ? nullptr : slope + p * tile.stride;
    std::int64_t at = 0;
    for (; at + lanes <= tile.stride; at += lanes)
      scores.take(d, hn::LoadU(d, to + at), at, to, slopes);
    for (; at < tile.stride; at += 2) scores.take(Two(), hn::LoadU(Two(), to + at), at, to, slopes);
  }
}

void z_kernel(const PairModel& model, std::span<const Pair> pairs, std::span<const PairTile> tiles,
              double* start, double* slope) {
  LineVector<double> squares;
  if constexpr (!kSquaresInRegisters)
    squares.resize(static_cast<std::size_t>(kTilePairs * model.keys.vectors.cols));
  for (const PairTile& tile : tiles) {
    double* const slopes = slope == nullptr ? nullptr : slope + tile.offset;
    if constexpr (kSquaresInRegisters)
      z_in_registers(model, pairs.data() + tile.first, tile, start + tile.offset, slopes);
    else
      z_in_memory(model, pairs.data() + tile.first, tile, squares.data(), start + tile.offset,
                  slopes);
  }
}

// Of kRows rows, side by side: none waits for a division of another.
template <int kRows>
HWY_INLINE void write_units(const double* xy, std::complex<double>* to, std::int64_t stride) {
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
    double* const unit = reinterpret_cast<double*>(to + pair % 2 * 2 * stride + pair / 2);
    hn::StoreU(hn::InterleaveLower(d, re, im), d, unit);
    hn::StoreU(hn::InterleaveUpper(d, re, im), d, unit + 2 * stride);
  }
}

void unit_kernel(const double* xy, std::int64_t rows, std::complex<double>* to,
                 std::int64_t stride) {
  constexpr std::int64_t kTogether = 3;
  std::int64_t row = 0;
  for (; row + kTogether <= rows; row += kTogether)
    write_units<kTogether>(xy + 8 * row, to + row, stride);
  for (; row < rows; ++row) write_units<1>(xy + 8 * row, to + row, stride);
}

// What turns a row, filled up with zeros to whole sixteens.
struct RowTurn {
  std::vector<double> sign;
  std::vector<double> start;  // - sign mean
  std::vector<double> w;
  std::vector<double> direction;

  RowTurn(const TurnedRows& rows, std::size_t padded)
      : sign(padded), start(padded), w(padded), direction(padded) {
    for (std::size_t j = 0; j < rows.dim; ++j) {
      sign[j] = rows.sign[j];
      start[j] = -rows.sign[j] * rows.mean[j];
      w[j] = rows.w.empty() ? 0 : rows.w[j];
      direction[j] = rows.direction[j];
    }
  }
};

void turn_rows_kernel(const TurnedRows& rows, double* out, double* along) {
  constexpr std::size_t kSums = 16;
  using Doubles = hn::CappedTag<double, kSums>;
  constexpr std::size_t kLanes = hn::MaxLanes(Doubles());
  constexpr std::size_t kVectors = kSums / kLanes;
  const Doubles d;
  const hn::Rebind<float, Doubles> floats;
  const auto padded = (rows.dim + kSums - 1) / kSums * kSums;
  const RowTurn turn(rows, padded);
  const auto centred = [&](const float* x, std::size_t j) HWY_ATTR {
    return hn::MulAdd(hn::PromoteTo(d, hn::LoadU(floats, x + j)),
                      hn::LoadU(d, turn.sign.data() + j), hn::LoadU(d, turn.start.data() + j));
  };
  std::vector<float> room(padded);
  for (const auto row : rows.order) {
    const float* x = rows.vectors + static_cast<std::size_t>(row) * rows.dim;
    if (padded > rows.dim) {
      std::copy_n(x, rows.dim, room.data());
      x = room.data();
    }
    hn::Vec<Doubles> sums[kVectors];
    for (auto& part : sums) part = hn::Zero(d);
    for (std::size_t j = 0; j < padded; j += kSums)
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kVectors; ++v) {
        const auto at = j + v * kLanes;
        const auto number = centred(x, at);
        hn::StoreU(number, d, out + at);
        sums[v] = hn::MulAdd(number, hn::LoadU(d, turn.w.data() + at), sums[v]);
      }
    const auto by = hn::Set(d, 2 * total_of(d, sums));
    for (auto& part : sums) part = hn::Zero(d);
    for (std::size_t j = 0; j < padded; j += kSums)
#pragma GCC unroll 8
      for (std::size_t v = 0; v < kVectors; ++v) {
        const auto at = j + v * kLanes;
        const auto turned =
            hn::NegMulAdd(by, hn::LoadU(d, turn.w.data() + at), hn::LoadU(d, out + at));
        hn::StoreU(turned, d, out + at);
        sums[v] = hn::MulAdd(turned, hn::LoadU(d, turn.direction.data() + at), sums[v]);
      }
    *along++ = total_of(d, sums);
    out += rows.dim;
  }
}

// Drifting rows [begin, end), of which x are the first coordinates, `apart` numbers from row to
// row.
struct DriftingPart {
  std::int64_t begin;
  std::int64_t end;
  const float* x;
  std::int64_t apart;
};

// Some lines of drifting rows, as many as leave their sums in registers.
struct DriftingLines {
  using Doubles = hn::CappedTag<double, DriftingRows::kRows>;
  using Vector = hn::Vec<Doubles>;
  static constexpr int kLanes = hn::MaxLanes(Doubles());
  static constexpr std::int64_t kLines = 8;
  static constexpr int kVectors = kLines / kLanes;

  const double* reflected;
  const double* time;
  const std::int32_t* bucket;
  const double* start;
  double* sum;
  double* squares;
  Vector sign[kVectors];
  Vector w[kVectors];          // its negative
  Vector drift[kVectors];      // its negative
  Vector powers[3][kVectors];  // sums of the second to fourth of what is left

  HWY_INLINE DriftingLines(const DriftingRows& rows, std::int64_t line, DriftSums& sums)
      : reflected(rows.reflected.data()),
        time(rows.time.data()),
        bucket(rows.bucket.data()),
        start(rows.start.data.data() + line),
        sum(sums.sum.data.data() + line),
        squares(sums.squares.data.data() + line) {
    const Doubles d;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sign[v] = hn::LoadU(d, rows.sign + line + kLanes * v);
      w[v] = hn::Neg(hn::LoadU(d, rows.w + line + kLanes * v));
      drift[v] = hn::Neg(hn::LoadU(d, rows.drift + line + kLanes * v));
      powers[0][v] = powers[1][v] = powers[2][v] = hn::Zero(d);
    }
  }

  // What is left of a row.
  HWY_INLINE void take(std::int64_t row, const float* x, Vector (&rest)[kVectors]) {
    const Doubles d;
    const hn::Rebind<float, Doubles> floats;
    const auto at = bucket[row] * DriftingRows::kLines;
    const Vector by = hn::Set(d, reflected[row]);
    const Vector tokens = hn::Set(d, time[row]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const auto to = at + kLanes * v;
      const auto off = hn::MulAdd(by, w[v],
                                  hn::MulAdd(hn::PromoteTo(d, hn::LoadU(floats, x + kLanes * v)),
                                             sign[v], hn::LoadU(d, start + to)));
      hn::StoreU(hn::Add(hn::LoadU(d, sum + to), off), d, sum + to);
      hn::StoreU(hn::MulAdd(off, off, hn::LoadU(d, squares + to)), d, squares + to);
      rest[v] = hn::MulAdd(drift[v], tokens, off);
      const auto square = hn::Mul(rest[v], rest[v]);
      powers[0][v] = hn::Add(powers[0][v], square);
      powers[1][v] = hn::MulAdd(square, rest[v], powers[1][v]);
      powers[2][v] = hn::MulAdd(square, square, powers[2][v]);
    }
  }

  HWY_INLINE void add_powers(PowerSums* residual) const {
    double all[3][kLines];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 3
      for (int power = 0; power < 3; ++power)
        hn::StoreU(powers[power][v], Doubles(), all[power] + kLanes * v);
    for (std::int64_t i = 0; i < kLines; ++i) {
      residual[i].second += all[0][i];
      residual[i].third += all[1][i];
      residual[i].fourth += all[2][i];
    }
  }
};

// to[stride i ..] = coordinate i of vector v of each row.
template <typename Rows>
HWY_INLINE void store_turned(const Rows& rows, int v, double* to, std::int64_t stride) {
  const DriftingLines::Doubles d;
  const auto even = hn::InterleaveLower(d, rows[0][v], rows[1][v]);
  const auto odd = hn::InterleaveUpper(d, rows[0][v], rows[1][v]);
  if constexpr (DriftingLines::kLanes == 2) {
    hn::StoreU(even, d, to);
    hn::StoreU(odd, d, to + stride);
  } else {
    const auto even_behind = hn::InterleaveLower(d, rows[2][v], rows[3][v]);
    const auto odd_behind = hn::InterleaveUpper(d, rows[2][v], rows[3][v]);
    hn::StoreU(hn::ConcatLowerLower(d, even_behind, even), d, to);
    hn::StoreU(hn::ConcatLowerLower(d, odd_behind, odd), d, to + stride);
    hn::StoreU(hn::ConcatUpperUpper(d, even_behind, even), d, to + 2 * stride);
    hn::StoreU(hn::ConcatUpperUpper(d, odd_behind, odd), d, to + 3 * stride);
  }
}

// As many rows at a time as coordinates are in a vector, which change places in registers.
HWY_NOINLINE void drift_lines(const DriftingRows& rows, const DriftingPart& part, std::int64_t line,
                              std::int64_t stride, double* out, DriftSums& sums) {
  constexpr std::int64_t kAhead = 16;  // rows
  constexpr int kRows = DriftingLines::kLanes;
  constexpr int kVectors = DriftingLines::kVectors;
  DriftingLines lines(rows, line, sums);
  const auto end = part.end;
  const auto apart = part.apart;
  const float* x = part.x + line;
  double* to = out + line * stride + part.begin;
  for (auto i = part.begin; i < end; i += kRows, x += kRows * apart, to += kRows) {
    DriftingLines::Vector rest[kRows][kVectors];
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      __builtin_prefetch(x + (kAhead + row) * apart);
      if (row == 0 || i + row < end) {
        lines.take(i + row, x + row * apart, rest[row]);
      } else {
#pragma GCC unroll 4
        for (auto& nothing : rest[row]) nothing = hn::Zero(DriftingLines::Doubles());
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store_turned(rest, v, to + kRows * v * stride, stride);
  }
  lines.add_powers(sums.residual + line);
}

void drift_kernel(const DriftingRows& rows, std::int64_t stride, double* out, DriftSums& sums) {
  constexpr std::int64_t kTogether = 64 * DriftingRows::kRows;  // stay in the first cache
  constexpr auto kLines = DriftingRows::kLines;
  const auto size = std::ssize(rows.bucket);
  std::vector<float> padded(rows.count < kLines ? kTogether * kLines : 0);
  for (std::int64_t begin = 0; begin < size; begin += kTogether) {
    DriftingPart part{begin, std::min(begin + kTogether, size), rows.vectors + begin * rows.dim,
                      rows.dim};
    if (rows.count < kLines) {
      for (std::int64_t i = 0; i < part.end - begin; ++i)
        std::copy_n(part.x + i * rows.dim, rows.count, padded.data() + i * kLines);
      part.x = padded.data();
      part.apart = kLines;
    }
    for (std::int64_t line = 0; line < kLines; line += DriftingLines::kLines)
      drift_lines(rows, part, line, stride, out, sums);
  }
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

HWY_EXPORT(z_kernel);
HWY_EXPORT(unit_kernel);
HWY_EXPORT(turn_rows_kernel);
HWY_EXPORT(drift_kernel);

}  // namespace

void z_lines(const PairModel& model, std::span<const Pair> pairs, std::span<const PairTile> tiles,
             double* start, double* slope) {
  QKSCOPE_DISPATCH(z_kernel)(model, pairs, tiles, start, slope);
}

void unit_vectors(const double* xy, std::int64_t rows, std::complex<double>* to,
                  std::int64_t stride) {
  QKSCOPE_DISPATCH(unit_kernel)(xy, rows, to, stride);
}

void turn_rows(const TurnedRows& rows, double* out, double* along) {
  QKSCOPE_DISPATCH(turn_rows_kernel)(rows, out, along);
}

DriftSums take_drift(const DriftingRows& rows, std::int64_t stride, double* out) {
  DriftSums sums{
      Matrix(rows.start.rows, rows.start.cols), Matrix(rows.start.rows, rows.start.cols), {}};
  QKSCOPE_DISPATCH(drift_kernel)(rows, stride, out, sums);
  for (std::int64_t b = 0; b < sums.sum.rows; ++b)
    for (std::int64_t line = 0; line < DriftingRows::kLines; ++line)
      sums.residual[line].first += sums.sum(b, line);
  return sums;
}

}  // namespace qkscope
#endif
