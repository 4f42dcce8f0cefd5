#include "analysis/methods/kernels/plane_kernels.h"

#include <cmath>

#include "base/core/cpu_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "analysis/methods/kernels/plane_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using TwoDoubles = hn::CappedTag<double, 2>;

// Normalizes kRows independent rows at a time, so that divisions and square roots overlap.
template <int kRows>
HWY_INLINE void write_unit_vectors(const double* xy, std::complex<double>* to,
                                   std::int64_t stride) {
  const TwoDoubles d;
  constexpr int kPairs = 2 * kRows;  // pairs of planes
  const auto from = [&](int pair) { return xy + 8 * (pair / 2) + 2 * (pair % 2); };
  hn::Vec<TwoDoubles> square[kPairs];
  hn::Vec<TwoDoubles> inverse[kPairs];
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

void to_unit_vectors_kernel(const double* xy, std::int64_t rows, std::complex<double>* to,
                            std::int64_t stride) {
  constexpr std::int64_t kTogether = 3;
  std::int64_t row = 0;
  for (; row + kTogether <= rows; row += kTogether)
    write_unit_vectors<kTogether>(xy + 8 * row, to + row, stride);
  for (; row < rows; ++row) write_unit_vectors<1>(xy + 8 * row, to + row, stride);
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
QKSCOPE_EXPORT_KERNEL(void, to_unit_vectors,
                      (const double* xy, std::int64_t rows, std::complex<double>* to,
                       std::int64_t stride),
                      (xy, rows, to, stride));

void to_unit_vectors_reference(const double* xy, std::int64_t rows, std::complex<double>* to,
                               std::int64_t stride) {
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t plane = 0; plane < 4; ++plane) {
      const std::complex<double> point(xy[8 * row + plane], xy[8 * row + 4 + plane]);
      to[stride * plane + row] = point == 0.0 ? 1.0 : point / std::abs(point);
    }
}

}  // namespace qkscope
#endif
