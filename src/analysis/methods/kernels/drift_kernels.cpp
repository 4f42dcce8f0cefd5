#include "analysis/methods/kernels/drift_kernels.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/core/cpu_target.h"
#include "base/numerics/products.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "analysis/methods/kernels/drift_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/numerics/running_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Two = hn::CappedTag<double, 2>;

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

  RowTurn(const TurnedRows& rows, std::size_t padded) : sign(padded), start(padded), w(padded) {
    for (std::size_t j = 0; j < rows.dim; ++j) {
      sign[j] = rows.sign[j];
      start[j] = -rows.sign[j] * rows.mean[j];
      w[j] = rows.w.empty() ? 0 : rows.w[j];
    }
  }
};

void turn_rows_kernel(const TurnedRows& rows, double* out) {
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
    for (std::size_t at = 0; at < padded; at += kLanes)
      hn::StoreU(hn::NegMulAdd(by, hn::LoadU(d, turn.w.data() + at), hn::LoadU(d, out + at)), d,
                 out + at);
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

HWY_EXPORT(unit_kernel);
HWY_EXPORT(turn_rows_kernel);
HWY_EXPORT(drift_kernel);

}  // namespace

void unit_vectors(const double* xy, std::int64_t rows, std::complex<double>* to,
                  std::int64_t stride) {
  QKSCOPE_DISPATCH(unit_kernel)(xy, rows, to, stride);
}

void turn_rows(const TurnedRows& rows, double* out) {
  QKSCOPE_DISPATCH(turn_rows_kernel)(rows, out);
}

void turn_rows_reference(const TurnedRows& rows, double* out) {
  for (const auto row : rows.order) {
    const float* const x = rows.vectors + static_cast<std::size_t>(row) * rows.dim;
    for (std::size_t j = 0; j < rows.dim; ++j) out[j] = rows.sign[j] * (x[j] - rows.mean[j]);
    reflect({out, rows.dim}, rows.w);
    out += rows.dim;
  }
}

DriftSums drift_residuals(const DriftingRows& rows, std::int64_t stride, double* out) {
  DriftSums sums{
      Matrix(rows.start.rows, rows.start.cols), Matrix(rows.start.rows, rows.start.cols), {}};
  QKSCOPE_DISPATCH(drift_kernel)(rows, stride, out, sums);
  for (std::int64_t b = 0; b < sums.sum.rows; ++b)
    for (std::int64_t line = 0; line < DriftingRows::kLines; ++line)
      sums.residual[line].first += sums.sum(b, line);
  return sums;
}

DriftSums drift_residuals_reference(const DriftingRows& rows, std::int64_t stride, double* out) {
  DriftSums sums{
      Matrix(rows.start.rows, rows.start.cols), Matrix(rows.start.rows, rows.start.cols), {}};
  for (std::int64_t line = 0; line < rows.count; ++line)
    for (std::int64_t i = 0; i < std::ssize(rows.bucket); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double value = rows.start(rows.bucket[at], line) +
                           rows.sign[line] * rows.vectors[i * rows.dim + line] -
                           rows.reflected[at] * rows.w[line];
      const double residual = value - rows.drift[line] * rows.time[at];
      out[line * stride + i] = residual;
      sums.sum(rows.bucket[at], line) += value;
      sums.squares(rows.bucket[at], line) += value * value;
      PowerSums& powers = sums.residual[line];
      powers.first += value;
      powers.second += residual * residual;
      powers.third += residual * residual * residual;
      powers.fourth += residual * residual * residual * residual;
    }
  return sums;
}

}  // namespace qkscope
#endif
