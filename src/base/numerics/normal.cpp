#include "base/numerics/normal.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/core/cpu_target.h"
#include "base/numerics/plasticity_series.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/normal.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using Vector = hn::Vec<Doubles>;

HWY_INLINE Vector all(double value) {
  return hn::Set(Doubles(), value);
}

// exp(u^2) erfc(u) (1 + 2u) as a polynomial in (u - 3) / (u + 3) for u >= 0, interpolated at
// Chebyshev nodes with 40 digits. Relative error below 5e-16.
constexpr double kErfcx[] = {
    1.2530080582697296,     -0.13562110612457573,    -0.04756229435344576,   0.129645158702281,
    -0.11927366341575335,   0.06830802735644051,     -0.02377051490712486,   0.0025293916666211625,
    0.0018886902217603342,  -0.000779831276440303,   -0.000105158888745708,  0.00012509529969692863,
    4.945791788878783e-06,  -2.0089974601937562e-05, -7.218910913909693e-07, 3.4542640815449015e-06,
    3.4040811203344006e-07, -5.963735757072212e-07,  -1.232972365581405e-07, 8.764763429942915e-08,
    2.900096033455807e-08,  -7.639805706660184e-09,  -3.3911975149641994e-09};

constexpr double kLargest = 26.5;
constexpr double kSplit = 134217729;  // 2^27 + 1: Veltkamp splitting

// Four vectors processed together to hide the latency of polynomial evaluation.
struct Lanes {
  static constexpr int kVectors = 4;
  static constexpr int kLanes = hn::MaxLanes(Doubles());
  static constexpr std::size_t kCount = kVectors * kLanes;
  Vector v[kVectors];

  HWY_INLINE Lanes() {}  // not defaulted: GCC would compile it for the baseline target
};

template <typename Function>
HWY_INLINE Lanes each(const Function& function) {
  Lanes result;
#pragma GCC unroll 4
  for (int i = 0; i < Lanes::kVectors; ++i) result.v[i] = function(i);
  return result;
}

template <std::size_t kTerms>
HWY_INLINE Lanes polynomial(const double (&terms)[kTerms], const Lanes& x) {
  Lanes p = each([&](int) HWY_ATTR { return all(terms[kTerms - 1]); });
#pragma GCC unroll 32
  for (int term = static_cast<int>(kTerms) - 2; term >= 0; --term)
    p = each([&](int i) HWY_ATTR { return hn::MulAdd(p.v[i], x.v[i], all(terms[term])); });
  return p;
}

// Branch-free exp(x) for -703 <= x <= 0.
HWY_INLINE Lanes exp_of_negative(const Lanes& x) {
  constexpr double kInvLn2 = 1.4426950408889634;
  constexpr double kLn2High = 6.93147180369123816490e-01;
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  // Taylor series for |r| <= ln(2) / 2; the first omitted term is 4e-18.
  constexpr double kTaylor[] = {1.0,
                                1.0,
                                0.5,
                                1.0 / 6,
                                1.0 / 24,
                                1.0 / 120,
                                1.0 / 720,
                                1.0 / 5040,
                                1.0 / 40320,
                                1.0 / 362880,
                                1.0 / 3628800,
                                1.0 / 39916800,
                                1.0 / 479001600,
                                1.0 / 6227020800};
  const Lanes shifted =
      each([&](int i) HWY_ATTR { return hn::MulAdd(x.v[i], all(kInvLn2), all(kRound)); });
  const Lanes r = each([&](int i) HWY_ATTR {
    const Vector k = hn::Sub(shifted.v[i], all(kRound));
    return hn::NegMulAdd(k, all(kLn2Low), hn::NegMulAdd(k, all(kLn2High), x.v[i]));
  });
  const Lanes p = polynomial(kTaylor, r);
  return each([&](int i) HWY_ATTR {
    const hn::RebindToSigned<Doubles> integers;
    const auto exponent =
        hn::Add(hn::BitCast(integers, shifted.v[i]), hn::Set(integers, std::int64_t{1023}));
    return hn::Mul(p.v[i], hn::BitCast(Doubles(), hn::ShiftLeft<52>(exponent)));
  });
}

HWY_INLINE Lanes erfc_of_positive(Lanes u) {
  u = each([&](int i) HWY_ATTR {
    return hn::IfThenElse(hn::Lt(u.v[i], all(kLargest)), u.v[i], all(kLargest));
  });
  const Lanes growth =
      each([&](int i) HWY_ATTR { return hn::MulAdd(all(2), u.v[i], all(1)); });  // 1 + 2 u
  // One division gives both (u - 3) / (u + 3) and 1 / (1 + 2 u).
  const Lanes inverse = each([&](int i) HWY_ATTR {
    return hn::Div(all(1), hn::Mul(hn::Add(u.v[i], all(3)), growth.v[i]));
  });
  const Lanes p =
      polynomial(kErfcx, each([&](int i) HWY_ATTR {
                   return hn::Mul(hn::Mul(hn::Sub(u.v[i], all(3)), growth.v[i]), inverse.v[i]);
                 }));
  const Lanes e =
      exp_of_negative(each([&](int i) HWY_ATTR { return hn::Neg(hn::Mul(u.v[i], u.v[i])); }));
  return each([&](int i) HWY_ATTR {
    const Vector square = hn::Mul(u.v[i], u.v[i]);
    // exp(-u^2) = exp(-square) (1 - lost), with the rounding error `lost` of u^2 by exact
    // splitting.
    const Vector scaled = hn::Mul(u.v[i], all(kSplit));
    const Vector high = hn::Sub(scaled, hn::Sub(scaled, u.v[i]));
    const Vector low = hn::Sub(u.v[i], high);
    const Vector lost = hn::MulAdd(
        low, low, hn::MulAdd(hn::Mul(all(2), high), low, hn::Sub(hn::Mul(high, high), square)));
    const Vector corrected = hn::NegMulAdd(e.v[i], lost, e.v[i]);
    return hn::Mul(hn::Mul(hn::Mul(corrected, p.v[i]), hn::Add(u.v[i], all(3))), inverse.v[i]);
  });
}

// Applies function to Lanes::kCount values at a time; the rest is padded with zeros.
template <typename Function>
HWY_INLINE void transform(double* values, std::size_t count, const Function& function) {
  const auto apply = [&](double* at) HWY_ATTR {
    const Lanes out = function(
        each([&](int i) HWY_ATTR { return hn::LoadU(Doubles(), at + i * Lanes::kLanes); }));
    for (int i = 0; i < Lanes::kVectors; ++i)
      hn::StoreU(out.v[i], Doubles(), at + i * Lanes::kLanes);
  };
  std::size_t i = 0;
  for (; i + Lanes::kCount <= count; i += Lanes::kCount) apply(values + i);
  if (i == count) return;
  double rest[Lanes::kCount] = {};
  std::copy(values + i, values + count, rest);
  apply(rest);
  std::copy_n(rest, count - i, values + i);
}

void erfc_kernel(double* z, std::size_t count) {
  transform(z, count, [](const Lanes& u) HWY_ATTR { return erfc_of_positive(u); });
}

// Returns x y + z, fused on targets with fused multiply-adds.
HWY_INLINE double fused(double x, double y, double z) {
  const hn::CappedTag<double, 1> one;
  return hn::GetLane(hn::MulAdd(hn::Set(one, x), hn::Set(one, y), hn::Set(one, z)));
}

// Evaluates the series at x, even and odd powers in two lanes.
HWY_INLINE double series_value(const double* terms, double x) {
  const hn::CappedTag<double, 2> two;
  const auto square = hn::Set(two, x * x);
  auto sum = hn::LoadU(two, terms + kSeriesTerms - 2);
#pragma GCC unroll 4
  for (int term = kSeriesTerms - 4; term >= 0; term -= 2)
    sum = hn::MulAdd(sum, square, hn::LoadU(two, terms + term));
  return fused(x, hn::ExtractLane(sum, 1), hn::GetLane(sum));
}

constexpr double kWhole = 4503599627370496;  // 2^52: adding it rounds to an integer

HWY_INLINE double plasticity_at(const double* nodes, double z) {
  z = std::fabs(z);
  if (!(z < kLastNode)) {
    const double e = std::erfc(z * (1 / std::numbers::sqrt2));
    return e * (2 - e);
  }
  const double node = fused(z, kNodesPerUnit, kWhole) - kWhole;
  return series_value(nodes + static_cast<int>(node) * kSeriesTerms,
                      fused(node, -1.0 / kNodesPerUnit, z));
}

// Two values of |z| below the last node. A series of eight terms is cheaper than the full function.
HWY_INLINE hn::Vec<hn::CappedTag<double, 2>> two_between_nodes(
    const double* nodes, hn::Vec<hn::CappedTag<double, 2>> z) {
  const hn::CappedTag<double, 2> two;
  const hn::RebindToSigned<decltype(two)> integers;
  const auto series = [&](std::int64_t bits, auto square) HWY_ATTR {
    const double* const terms = nodes + static_cast<std::int32_t>(bits) * kSeriesTerms;
    auto sum = hn::LoadU(two, terms + kSeriesTerms - 2);
#pragma GCC unroll 4
    for (int term = kSeriesTerms - 4; term >= 0; term -= 2)
      sum = hn::MulAdd(sum, square, hn::LoadU(two, terms + term));
    return sum;
  };
  // The low bits of the sum hold the index of the nearest node.
  const auto rounded = hn::MulAdd(z, hn::Set(two, kNodesPerUnit), hn::Set(two, kWhole));
  const auto node = hn::BitCast(integers, rounded);
  const auto x =
      hn::NegMulAdd(hn::Sub(rounded, hn::Set(two, kWhole)), hn::Set(two, 1.0 / kNodesPerUnit), z);
  const auto square = hn::Mul(x, x);
  const auto first = series(hn::ExtractLane(node, 0), hn::InterleaveLower(two, square, square));
  const auto second = series(hn::ExtractLane(node, 1), hn::InterleaveUpper(two, square, square));
  // Even powers plus x times odd powers.
  return hn::MulAdd(hn::InterleaveUpper(two, first, second), x,
                    hn::InterleaveLower(two, first, second));
}

// Not inlined, so that table_kernel() keeps its constants in registers.
HWY_NOINLINE void plasticity_one_by_one(const double* nodes, std::int64_t count, double* values) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = plasticity_at(nodes, values[i]);
}

// Replaces z by its plasticity.
void table_kernel(const double* nodes, std::int64_t count, double* values) {
  constexpr std::int64_t kTogether = 8;
  const hn::CappedTag<double, 2> two;
  const auto last = hn::Set(two, kLastNode);
  std::int64_t i = 0;
  for (; i + kTogether <= count; i += kTogether) {
    auto inside = hn::Lt(hn::Abs(hn::LoadU(two, values + i)), last);
#pragma GCC unroll 4
    for (auto j = i + 2; j < i + kTogether; j += 2)
      inside = hn::And(inside, hn::Lt(hn::Abs(hn::LoadU(two, values + j)), last));
    if (!hn::AllTrue(two, inside)) {
      plasticity_one_by_one(nodes, kTogether, values + i);
      continue;
    }
#pragma GCC unroll 4
    for (auto j = i; j < i + kTogether; j += 2)
      hn::StoreU(two_between_nodes(nodes, hn::Abs(hn::LoadU(two, values + j))), two, values + j);
  }
  plasticity_one_by_one(nodes, count - i, values + i);
}

void along_kernel(const ZLines& lines, const double* nodes, double* out) {
  const hn::CappedTag<double, 2> two;
  double* z = out;
  for (auto i = lines.first; i < lines.end;) {
    const auto line = lines.line[i] - lines.first_line;
    const double start = lines.start[line];
    const double slope = lines.slope[line];
    const auto end = std::min<std::int64_t>(lines.line_end[i], lines.end);
    for (; i + 2 <= end; i += 2, z += 2)
      hn::StoreU(
          hn::MulAdd(hn::Set(two, slope), hn::LoadU(two, lines.shift + i), hn::Set(two, start)),
          two, z);
    if (i < end) *z++ = fused(slope, lines.shift[i++], start);
  }
  table_kernel(nodes, lines.end - lines.first, out);
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

HWY_EXPORT(erfc_kernel);
HWY_EXPORT(along_kernel);
HWY_EXPORT(table_kernel);

}  // namespace

void erfc_in_place(std::span<double> z) {
  QKSCOPE_DISPATCH(erfc_kernel)(z.data(), z.size());
}

void plasticity_along(const ZLines& lines, double* out) {
  QKSCOPE_DISPATCH(along_kernel)(lines, plasticity_series(), out);
}

void plasticity_from_table(std::span<double> z) {
  QKSCOPE_DISPATCH(table_kernel)(plasticity_series(), std::ssize(z), z.data());
}

}  // namespace qkscope
#endif
