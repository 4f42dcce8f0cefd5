#include <algorithm>
#include <cmath>

#include "base/core/cpu_target.h"
#include "base/numerics/matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/numerics/vectors.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/numerics/kernel_helpers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kSums = 16;
using Doubles = hn::CappedTag<double, kSums>;
using Vector = hn::Vec<Doubles>;
using Floats = hn::Rebind<float, Doubles>;
constexpr int kLanes = hn::MaxLanes(Doubles());
constexpr int kVectors = kSums / kLanes;

HWY_INLINE Vector load(const double* from) {
  return hn::LoadU(Doubles(), from);
}
HWY_INLINE Vector load(const float* from) {
  return hn::PromoteTo(Doubles(), hn::LoadU(Floats(), from));
}

// 16 partial sums: enough to hide the latency of the additions.
struct PartialSums {
  Vector v[kVectors];

  HWY_INLINE PartialSums() {
    for (Vector& part : v) part = hn::Zero(Doubles());
  }
  HWY_INLINE double total() const { return sum_all_lanes(Doubles(), v); }
};

// Splits the array into groups of 16 values and calls add(i, v) with the i-th SIMD vector of each
// group. `filler` pads the last group.
template <typename Add>
HWY_INLINE void for_each_vector(std::span<const double> values, double filler, const Add& add) {
  const double* const x = values.data();
  const auto count = std::ssize(values);
  std::int64_t at = 0;
  for (; at + kSums <= count; at += kSums)
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) add(i, load(x + at + i * kLanes));
  if (at == count) return;
  double rest[kSums];
  std::fill_n(std::copy(x + at, x + count, rest), kSums - (count - at), filler);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) add(i, load(rest + i * kLanes));
}

double sum_kernel(std::span<const double> x) {
  PartialSums sums;
  for_each_vector(x, 0,
                  [&](int i, Vector values) HWY_ATTR { sums.v[i] = hn::Add(sums.v[i], values); });
  return sums.total();
}

PowerSums central_power_sums_kernel(std::span<const double> x, double centre) {
  PartialSums first;
  PartialSums second;
  PartialSums third;
  PartialSums fourth;
  const Vector middle = hn::Set(Doubles(), centre);
  for_each_vector(x, centre, [&](int i, Vector values) HWY_ATTR {
    const Vector off = hn::Sub(values, middle);
    const Vector square = hn::Mul(off, off);
    first.v[i] = hn::Add(first.v[i], off);
    second.v[i] = hn::Add(second.v[i], square);
    third.v[i] = hn::MulAdd(square, off, third.v[i]);
    fourth.v[i] = hn::MulAdd(square, square, fourth.v[i]);
  });
  return {first.total(), second.total(), third.total(), fourth.total()};
}

// Dot products of rows (count, cols) with y (cols).
template <typename Number>
HWY_INLINE void compute_row_dot_products(const Number* rows, std::int64_t count, const double* y,
                                         std::int64_t cols, double* out) {
  for (std::int64_t row = 0; row < count; ++row, rows += cols) {
    PartialSums sums;
    const auto add = [&](const Number* from, const double* with) HWY_ATTR {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        sums.v[v] = hn::MulAdd(load(from + v * kLanes), load(with + v * kLanes), sums.v[v]);
    };
    std::int64_t at = 0;
    for (; at + kSums <= cols; at += kSums) add(rows + at, y + at);
    if (at < cols) {
      Number rest[kSums] = {};
      double with[kSums] = {};
      std::copy(rows + at, rows + cols, rest);
      std::copy(y + at, y + cols, with);
      add(rest, with);
    }
    out[row] = sums.total();
  }
}

void row_dots_kernel(const double* rows, std::int64_t count, const double* y, std::int64_t cols,
                     double* out) {
  compute_row_dot_products(rows, count, y, cols, out);
}

void row_dots_float_kernel(const float* rows, std::int64_t count, const double* y,
                           std::int64_t cols, double* out) {
  compute_row_dot_products(rows, count, y, cols, out);
}

// Sets y[i] = function(y[i], x[i]); the last SIMD vector is padded with zeros.
template <typename Number, typename Function>
HWY_INLINE void apply_elementwise(const Number* x, std::int64_t count, double* y,
                                  const Function& function) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    hn::StoreU(function(load(y + i), load(x + i)), Doubles(), y + i);
  if (i == count) return;
  Number rest[kLanes] = {};
  double out[kLanes] = {};
  std::copy(x + i, x + count, rest);
  std::copy(y + i, y + count, out);
  hn::StoreU(function(load(out), load(rest)), Doubles(), out);
  std::copy_n(out, count - i, y + i);
}

void add_scaled_kernel(double factor, std::span<const double> x, std::span<double> y) {
  const Vector by = hn::Set(Doubles(), factor);
  apply_elementwise(x.data(), std::ssize(x), y.data(),
                    [&](Vector to, Vector value) HWY_ATTR { return hn::MulAdd(by, value, to); });
}

// Adds kRows weighted rows to `sums` in one pass, so `sums` are loaded and stored less often.
template <int kRows>
HWY_INLINE void add_weighted_rows(const WeightedRow* rows, std::int64_t cols, double* sums) {
  const auto add = [&](auto d, std::int64_t j) HWY_ATTR {
    auto first = hn::LoadU(d, sums + j);
    auto second = hn::LoadU(d, sums + cols + j);
    auto third = hn::LoadU(d, sums + 2 * cols + j);
#pragma GCC unroll 4
    for (int row = 0; row < kRows; ++row) {
      const auto x = hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, decltype(d)>(), rows[row].x + j));
      const auto weighted = hn::Mul(hn::Set(d, rows[row].weight), x);
      first = hn::Add(first, weighted);
      second = hn::MulAdd(hn::Set(d, rows[row].moment), x, second);
      third = hn::MulAdd(weighted, x, third);
    }
    hn::StoreU(first, d, sums + j);
    hn::StoreU(second, d, sums + cols + j);
    hn::StoreU(third, d, sums + 2 * cols + j);
  };
  std::int64_t j = 0;
  for (; j + kLanes <= cols; j += kLanes) add(Doubles(), j);
  for (; j < cols; ++j) add(hn::CappedTag<double, 1>(), j);
}

void compute_weighted_sums_kernel(std::span<const WeightedRow> rows, std::int64_t cols,
                                  double* sums) {
  constexpr std::size_t kTogether = 4;
  std::fill_n(sums, 3 * cols, 0.0);
  for (std::size_t i = 0; i < rows.size(); i += kTogether)
    call_with_compile_time_count<kTogether>(std::ssize(rows.subspan(i)), [&](auto count) HWY_ATTR {
      add_weighted_rows<count>(rows.data() + i, cols, sums);
    });
}

void add_column_sums_kernel(const float* rows, std::int64_t count, std::span<double> sums) {
  const auto cols = std::ssize(sums);
  for (std::int64_t i = 0; i < count; ++i)
    apply_elementwise(rows + i * cols, cols, sums.data(),
                      [](Vector to, Vector value) HWY_ATTR { return hn::Add(to, value); });
}

void centre_rows_kernel(const float* rows, std::int64_t count, std::span<const double> means,
                        double* out) {
  const auto cols = std::ssize(means);
  const double* const mean = means.data();
  for (std::int64_t i = 0; i < count; ++i, rows += cols, out += cols) {
    std::int64_t j = 0;
    for (; j + kLanes <= cols; j += kLanes)
      hn::StoreU(hn::Sub(load(rows + j), load(mean + j)), Doubles(), out + j);
    for (; j < cols; ++j) out[j] = rows[j] - mean[j];
  }
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
HWY_EXPORT(row_dots_kernel);
HWY_EXPORT(row_dots_float_kernel);
QKSCOPE_EXPORT_KERNEL(double, sum, (std::span<const double> x), (x));
QKSCOPE_EXPORT_KERNEL(PowerSums, central_power_sums, (std::span<const double> x, double centre),
                      (x, centre));
QKSCOPE_EXPORT_KERNEL(void, add_scaled,
                      (double factor, std::span<const double> x, std::span<double> y),
                      (factor, x, y));
QKSCOPE_EXPORT_KERNEL(void, compute_weighted_sums,
                      (std::span<const WeightedRow> rows, std::int64_t cols, double* sums),
                      (rows, cols, sums));
QKSCOPE_EXPORT_KERNEL(void, add_column_sums,
                      (const float* rows, std::int64_t count, std::span<double> sum),
                      (rows, count, sum));
QKSCOPE_EXPORT_KERNEL(void, centre_rows,
                      (const float* rows, std::int64_t count, std::span<const double> mean,
                       double* out),
                      (rows, count, mean, out));

void compute_row_dots(const double* rows, std::int64_t count, std::span<const double> y,
                      double* out) {
  QKSCOPE_DISPATCH(row_dots_kernel)(rows, count, y.data(), std::ssize(y), out);
}

void compute_row_dots(const float* rows, std::int64_t count, std::span<const double> y,
                      double* out) {
  QKSCOPE_DISPATCH(row_dots_float_kernel)(rows, count, y.data(), std::ssize(y), out);
}

double dot(std::span<const double> x, std::span<const double> y) {
  double result = 0;
  compute_row_dots(x.data(), 1, y.first(x.size()), &result);
  return result;
}

double dot(std::span<const float> x, std::span<const double> y) {
  double result = 0;
  compute_row_dots(x.data(), 1, y.first(x.size()), &result);
  return result;
}

double norm(std::span<const double> x) {
  return std::sqrt(dot(x, x));
}

}  // namespace qkscope
#endif
