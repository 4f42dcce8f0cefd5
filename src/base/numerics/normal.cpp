#include "base/numerics/normal.h"

#include <algorithm>
#include <array>

#include "base/core/cpu_target.h"
#include "base/core/numbers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/numerics/normal.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/numerics/kernel_helpers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using Vector = hn::Vec<Doubles>;

HWY_INLINE Vector broadcast(double value) {
  return hn::Set(Doubles(), value);
}

// exp(u^2) erfc(u) (1 + 2u) as a polynomial in (u - 3) / (u + 3) for u >= 0, interpolated at
// Chebyshev nodes with 40 digits. Relative error below 5e-16.
constexpr std::array kErfcx = {
    1.2530080582697296,     -0.13562110612457573,    -0.04756229435344576,   0.129645158702281,
    -0.11927366341575335,   0.06830802735644051,     -0.02377051490712486,   0.0025293916666211625,
    0.0018886902217603342,  -0.000779831276440303,   -0.000105158888745708,  0.00012509529969692863,
    4.945791788878783e-06,  -2.0089974601937562e-05, -7.218910913909693e-07, 3.4542640815449015e-06,
    3.4040811203344006e-07, -5.963735757072212e-07,  -1.232972365581405e-07, 8.764763429942915e-08,
    2.900096033455807e-08,  -7.639805706660184e-09,  -3.3911975149641994e-09};

constexpr double kLargest = 26.5;
constexpr double kSplit = 134217729;  // 2^27 + 1: Veltkamp splitting

template <std::size_t kTerms>
HWY_INLINE Vector evaluate_polynomial(const std::array<double, kTerms>& terms, Vector x) {
  Vector p = broadcast(terms[kTerms - 1]);
#pragma GCC unroll 32
  for (int term = static_cast<int>(kTerms) - 2; term >= 0; --term)
    p = hn::MulAdd(p, x, broadcast(terms[term]));
  return p;
}

// Branch-free exp(x) for -703 <= x <= 0.
HWY_INLINE Vector exp_of_negative(Vector x) {
  constexpr double kInvLn2 = 1.4426950408889634;
  constexpr double kLn2High = 6.93147180369123816490e-01;
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  // Taylor coefficients 1 / n! of exp(r), |r| <= ln(2) / 2; the first omitted term is 4e-18.
  constexpr auto kTaylor = [] {
    std::array<double, 14> terms{1};
    double factorial = 1;
    for (std::size_t n = 1; n < terms.size(); ++n) terms[n] = 1 / (factorial *= to_double(n));
    return terms;
  }();
  const Vector shifted = hn::MulAdd(x, broadcast(kInvLn2), broadcast(kRound));
  const Vector k = hn::Sub(shifted, broadcast(kRound));
  const Vector r = hn::NegMulAdd(k, broadcast(kLn2Low), hn::NegMulAdd(k, broadcast(kLn2High), x));
  const hn::RebindToSigned<Doubles> integers;
  const auto exponent =
      hn::Add(hn::BitCast(integers, shifted), hn::Set(integers, std::int64_t{1023}));
  return hn::Mul(evaluate_polynomial(kTaylor, r),
                 hn::BitCast(Doubles(), hn::ShiftLeft<52>(exponent)));
}

HWY_INLINE Vector erfc_of_positive(Vector u) {
  u = hn::IfThenElse(hn::Lt(u, broadcast(kLargest)), u, broadcast(kLargest));
  const Vector growth = hn::MulAdd(broadcast(2), u, broadcast(1));  // 1 + 2 u
  // One division gives both (u - 3) / (u + 3) and 1 / (1 + 2 u).
  const Vector inverse = hn::Div(broadcast(1), hn::Mul(hn::Add(u, broadcast(3)), growth));
  const Vector p =
      evaluate_polynomial(kErfcx, hn::Mul(hn::Mul(hn::Sub(u, broadcast(3)), growth), inverse));
  const Vector square = hn::Mul(u, u);
  const Vector e = exp_of_negative(hn::Neg(square));
  // exp(-u^2) is about exp(-square) (1 - lost), where u^2 = square + lost exactly; `lost` comes
  // from Veltkamp-Dekker splitting.
  const Vector scaled = hn::Mul(u, broadcast(kSplit));
  const Vector high = hn::Sub(scaled, hn::Sub(scaled, u));
  const Vector low = hn::Sub(u, high);
  const Vector lost = hn::MulAdd(
      low, low, hn::MulAdd(hn::Mul(broadcast(2), high), low, hn::Sub(hn::Mul(high, high), square)));
  const Vector corrected = hn::NegMulAdd(e, lost, e);
  return hn::Mul(hn::Mul(hn::Mul(corrected, p), hn::Add(u, broadcast(3))), inverse);
}

void erfc_in_place_kernel(std::span<double> z) {
  constexpr std::size_t kLanes = hn::MaxLanes(Doubles());
  const auto replace = [](double* at) HWY_ATTR {
    hn::StoreU(erfc_of_positive(hn::LoadU(Doubles(), at)), Doubles(), at);
  };
  std::size_t i = 0;
  for (; i + kLanes <= z.size(); i += kLanes) replace(z.data() + i);
  double rest[kLanes] = {};
  std::copy(z.begin() + static_cast<std::ptrdiff_t>(i), z.end(), rest);
  replace(rest);
  std::copy_n(rest, z.size() - i, z.begin() + static_cast<std::ptrdiff_t>(i));
}

// 4 Phi(z) Phi(-z) = Q(z^2)^-4 where Q is a minimax polynomial. The maximum error is 2e-7, or 7e-7
// with float32 rounding. All terms are positive, so the result tends to 0 for large z.
constexpr float kPlasticity[] = {1.0F,           0.159153864F,    0.0102773225F,  0.000394114875F,
                                 1.84215296e-5F, 1.47551532e-07F, 1.60510982e-08F};

// Returns the plasticity 4 p (1 - p) of two keys, where p = Phi(z) is the probability over queries
// that the first key has the higher score. Unit: kPlasticityUnit.
template <typename Floats>
HWY_INLINE auto plasticity_of_z_score(Floats d, hn::Vec<Floats> z) {
  constexpr float kRootOfUnits = 1 << 12;
  const auto term = [&](int i) HWY_ATTR { return hn::Set(d, kPlasticity[i]); };
  const auto square = hn::Mul(z, z);
  const auto fourth = hn::Mul(square, square);
  // Estrin's scheme: fewer copies of coefficients and a shorter dependency chain than Horner's.
  const auto high = hn::MulAdd(term(6), fourth, hn::MulAdd(term(5), square, term(4)));
  const auto middle = hn::MulAdd(high, fourth, hn::MulAdd(term(3), square, term(2)));
  const auto sum = hn::MulAdd(middle, fourth, hn::MulAdd(term(1), square, term(0)));
  const auto root = hn::Div(hn::Set(d, kRootOfUnits), hn::Mul(sum, sum));
  return hn::BitCast(hn::Rebind<std::uint32_t, Floats>(), hn::NearestInt(hn::Mul(root, root)));
}

// Computes prefix sums over queries (points) of the plasticity 4 Phi(z) Phi(-z) of key pairs, one
// pair per SIMD lane. Interpolating z takes one multiply-add: start and slope stay in registers.
template <int kLanes>
HWY_INLINE void accumulate_plasticity_lanes(const ZScoreTable& lines,
                                            const QueryRangesPerSimdLane& points,
                                            std::uint32_t* running, std::uint32_t* total) {
  using Floats = hn::CappedTag<float, (kLanes & -kLanes)>;  // a power of two
  const Floats d;
  const hn::Rebind<std::uint32_t, Floats> units;
  const hn::Rebind<std::int32_t, Floats> numbers;
  constexpr int kStep = hn::MaxLanes(d);  // lanes per vector
  constexpr int kVectors = kLanes / kStep;
  hn::Vec<decltype(units)> sum[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) sum[v] = hn::Zero(units);
  const auto store_sums = [&]() HWY_ATTR {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[v], units, running + v * kStep);
    running += kLanes;
  };
  // Adds the plasticity at points [first, end), all in one column of z; excluded lanes add 0.
  const auto add_points = [&](std::int32_t first, std::int32_t end) HWY_ATTR {
    const auto row = lines.column[first] - lines.first_column;
    const float* const z = lines.z + row * kLanes;
    const float* const next = row + 1 < lines.columns ? z + kLanes : z;
    hn::Vec<Floats> start[kVectors];
    hn::Vec<Floats> slope[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      start[v] = hn::LoadU(d, z + v * kStep);
      slope[v] = hn::Sub(hn::LoadU(d, next + v * kStep), start[v]);
    }
    for (auto i = first; i < end; ++i) {
      const auto fraction = hn::Set(d, lines.fraction[i]);
      auto of_lanes = hn::Zero(units);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        auto value = plasticity_of_z_score(d, hn::MulAdd(slope[v], fraction, start[v]));
        const auto at = hn::Set(numbers, i);
        const auto from = hn::LoadU(numbers, points.lane_first + v * kStep);
        const auto to = hn::LoadU(numbers, points.lane_end + v * kStep);
        const auto counts = hn::AndNot(hn::Lt(at, from), hn::Lt(at, to));
        value = hn::IfThenElseZero(hn::RebindMask(units, counts), value);
        sum[v] = hn::Add(sum[v], value);
        of_lanes = hn::Add(of_lanes, value);
      }
      store_sums();
      *total++ = hn::GetLane(hn::SumOfLanes(units, of_lanes));
    }
  };
  store_sums();
  for (auto i = points.first, end = i; i < points.end; i = end) {
    while (end < points.end && lines.column[end] == lines.column[i]) ++end;
    add_points(i, end);
  }
}

void accumulate_plasticity_kernel(const ZScoreTable& lines, const QueryRangesPerSimdLane& points,
                                  std::uint32_t* running, std::uint32_t* total) {
  call_with_compile_time_count<kMostLanes / kLaneStep>(
      lines.lanes / kLaneStep, [&](auto vectors) HWY_ATTR {
        accumulate_plasticity_lanes<vectors * kLaneStep>(lines, points, running, total);
      });
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {

QKSCOPE_EXPORT_KERNEL(void, erfc_in_place, (std::span<double> z), (z));
QKSCOPE_EXPORT_KERNEL(void, accumulate_plasticity,
                      (const ZScoreTable& lines, const QueryRangesPerSimdLane& points,
                       std::uint32_t* running, std::uint32_t* total),
                      (lines, points, running, total));

}  // namespace qkscope
#endif
