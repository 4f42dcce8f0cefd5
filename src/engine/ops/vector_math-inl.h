// Vector functions and loops for files that Highway compiles once per CPU target
// (base/core/cpu_target.h). Every function is a fixed sequence of operations for any vector width,
// and only explicit MulAdd is fused, so results are bit-identical on every target with FMA.

// Include guard that lets Highway include this header once per target.
#if defined(QKSCOPE_OPS_VECTOR_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKSCOPE_OPS_VECTOR_MATH_INL_H
#undef QKSCOPE_OPS_VECTOR_MATH_INL_H
#else
#define QKSCOPE_OPS_VECTOR_MATH_INL_H
#endif

#include <array>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;
inline constexpr std::int64_t kFloats = hn::MaxLanes(FloatTag());

// Extent of a load or store: a full vector, or the first `count` lanes at the end of a row.
struct AllLanes {};
struct LaneCount {
  std::int64_t count;
};

HWY_INLINE FloatVector load(const float* from, AllLanes, float /*fill*/ = 0.0f) {
  return hn::LoadU(FloatTag(), from);
}

// Loads the first part.count lanes; the other lanes become `fill`.
HWY_INLINE FloatVector load(const float* from, LaneCount part, float fill = 0.0f) {
  HWY_ALIGN float lanes[kFloats];
  hn::Store(hn::Set(FloatTag(), fill), FloatTag(), lanes);
  std::memcpy(lanes, from, static_cast<std::size_t>(part.count) * sizeof(float));
  return hn::Load(FloatTag(), lanes);
}

template <typename V, typename T>
HWY_INLINE void store(V values, T* to, AllLanes) {
  hn::StoreU(values, hn::ScalableTag<T>(), to);
}

template <typename V, typename T>
HWY_INLINE void store(V values, T* to, LaneCount part) {
  HWY_ALIGN T lanes[kFloats];
  hn::Store(values, hn::ScalableTag<T>(), lanes);
  std::memcpy(to, lanes, static_cast<std::size_t>(part.count) * sizeof(T));
}

// Calls body(i, extent) for each vector of a row.
template <typename Body>
HWY_INLINE void for_each_vector(std::int64_t count, Body body) {
  std::int64_t i = 0;
  for (; i + kFloats <= count; i += kFloats) body(i, AllLanes());
  if (i < count) body(i, LaneCount{count - i});
}

// Reductions use 16 interleaved lanes on every target: lane l handles elements l, l + 16, ...
inline constexpr std::int64_t kSumLanes = 16;
inline constexpr std::int64_t kSumVectors = kSumLanes / kFloats;
static_assert(kSumLanes % kFloats == 0);

// Sums all lanes pairwise: the upper half is added to the lower half until one lane is left.
template <typename D>
HWY_INLINE float sum_of_lanes(D d, hn::Vec<D> sums) {
  if constexpr (hn::MaxLanes(d) == 1) {
    return hn::GetLane(sums);
  } else {
    const hn::Half<D> half;
    return sum_of_lanes(half, hn::Add(hn::LowerHalf(half, sums), hn::UpperHalf(half, sums)));
  }
}

// Accumulators of a sum in 16 interleaved lanes.
class LaneSums {
 public:
  HWY_INLINE LaneSums() {
    for (auto& sum : sums_) sum = hn::Zero(FloatTag());
  }
  HWY_INLINE FloatVector& operator[](std::int64_t vector) { return sums_[vector]; }
  HWY_INLINE float total() {
#pragma GCC unroll 4
    for (std::int64_t width = kSumVectors / 2; width > 0; width /= 2)
#pragma GCC unroll 4
      for (std::int64_t v = 0; v < width; ++v) sums_[v] = hn::Add(sums_[v], sums_[v + width]);
    return sum_of_lanes(FloatTag(), sums_[0]);
  }

 private:
  FloatVector sums_[kSumVectors];
};

// Calls body(i, extent, v) for each vector of a row; v is the index of its accumulator in LaneSums.
template <typename Body>
HWY_INLINE void for_each_reduction_step(std::int64_t count, Body body) {
  std::int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes)
#pragma GCC unroll 4
    for (std::int64_t v = 0; v < kSumVectors; ++v) body(i + v * kFloats, AllLanes(), v);
  if (i == count) return;
#pragma GCC unroll 4
  for (std::int64_t v = 0; v < kSumVectors; ++v, i += kFloats) {
    if (i + kFloats <= count)
      body(i, AllLanes(), v);
    else if (i < count)
      body(i, LaneCount{count - i}, v);
  }
}

// Returns the sum over a row: term(i, extent, sum) adds the elements at i to a vector of sums and
// must add 0 in lanes beyond the end of the row.
template <typename Term>
HWY_INLINE float sum_terms(std::int64_t count, Term term) {
  LaneSums sums;
  for_each_reduction_step(count, [&](std::int64_t i, auto extent, std::int64_t v)
                                     HWY_ATTR { sums[v] = term(i, extent, sums[v]); });
  return sums.total();
}

HWY_INLINE float sum_over_row(const float* x, std::int64_t count) {
  return sum_terms(count, [&](std::int64_t i, auto extent, FloatVector sum)
                              HWY_ATTR { return hn::Add(sum, load(x + i, extent)); });
}

// Transposes a 4 x 4 block: out[k][i] = rows[i][k]. D has four lanes.
template <typename D, typename V>
HWY_INLINE void transpose(D d, V (&rows)[4]) {
  const auto low01 = hn::InterleaveLower(d, rows[0], rows[1]);
  const auto low23 = hn::InterleaveLower(d, rows[2], rows[3]);
  const auto high01 = hn::InterleaveUpper(d, rows[0], rows[1]);
  const auto high23 = hn::InterleaveUpper(d, rows[2], rows[3]);
  rows[0] = hn::ConcatLowerLower(d, low23, low01);
  rows[1] = hn::ConcatUpperUpper(d, low23, low01);
  rows[2] = hn::ConcatLowerLower(d, high23, high01);
  rows[3] = hn::ConcatUpperUpper(d, high23, high01);
}

// `count` scalars; get<i>() returns scalar i in every lane of a vector.
template <typename D, int count>
class BroadcastScalars {
 public:
#if HWY_ARCH_ARM_A64  // NEON multiplies by one lane of a register
  HWY_INLINE explicit BroadcastScalars(const float* x) {
    for (int i = 0; i < count / kWidth; ++i) values_[i] = hn::LoadU(D(), x + i * kWidth);
  }
  template <int i>
  HWY_INLINE hn::Vec<D> get() const {
    return hn::Broadcast<i % kWidth>(values_[i / kWidth]);
  }

 private:
  static constexpr int kWidth = static_cast<int>(hn::MaxLanes(D()));
  hn::Vec<D> values_[count / kWidth];
#else
  HWY_INLINE explicit BroadcastScalars(const float* x) : values_(x) {}
  template <int i>
  HWY_INLINE hn::Vec<D> get() const {
    return hn::Set(D(), values_[i]);
  }

 private:
  const float* values_;
#endif
};

// Returns the maximum of `start` and a row. Compares, because max instructions differ for NaN.
HWY_INLINE float max_over_row(const float* row, std::int64_t count, float start) {
  FloatVector largest[kSumVectors];
  for (auto& vector : largest) vector = hn::Set(FloatTag(), start);
  for_each_reduction_step(count, [&](std::int64_t i, auto extent, std::int64_t v) HWY_ATTR {
    const auto values = load(row + i, extent, start);
    largest[v] = hn::IfThenElse(hn::Lt(largest[v], values), values, largest[v]);
  });
  float result = start;
  HWY_ALIGN float lanes[kFloats];
  for (const auto& vector : largest) {
    hn::Store(vector, FloatTag(), lanes);
    for (const float lane : lanes) result = result < lane ? lane : result;
  }
  return result;
}

inline constexpr float kLowestExponent = -87.5f;  // exp_approx is 0 below

// Computes exp(x); `clamped_x` is x clamped to the exponent range of float32.
template <typename D, typename V = hn::Vec<D>>
HWY_INLINE V exp_with_clamped_argument(D d, V x, V clamped_x) {
  const auto round = hn::Set(d, 0x1.8p23f);  // adding 1.5 * 2^23 rounds to an integer
  const auto shifted = hn::MulAdd(clamped_x, hn::Set(d, 1.44269504088896341f), round);
  const auto whole = hn::Sub(shifted, round);
  auto r = hn::NegMulAdd(whole, hn::Set(d, 0.693359375f), x);  // ln 2 in two parts
  r = hn::NegMulAdd(whole, hn::Set(d, -2.12194440e-4f), r);
  auto p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(hn::Mul(p, r), r, r), hn::Set(d, 1.0f));
  // The low bits of `shifted` hold `whole` as an integer, which becomes the exponent of 2^whole.
  const hn::RebindToUnsigned<D> bits;
  const auto power =
      hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::BitCast(bits, shifted), hn::Set(bits, 127u))));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kLowestExponent)), hn::Mul(p, power));
}

// exp(x) with an error of at most 2 ULP for x in [-87, 88]. Exactly 0 below -87.5 and for
// -infinity, very large or infinite above 88; NaN stays NaN.
template <typename D, typename V = hn::Vec<D>>
HWY_INLINE V exp_approx(D d, V x) {
  const auto lowest = hn::Set(d, kLowestExponent);
  const auto highest = hn::Set(d, 88.0f);
  const auto above = hn::IfThenElse(hn::Gt(x, lowest), x, lowest);
  return exp_with_clamped_argument(d, x, hn::IfThenElse(hn::Lt(above, highest), above, highest));
}

// exp(x) for x <= 0 or NaN; bit-identical to exp_approx with fewer instructions.
template <typename D, typename V = hn::Vec<D>>
HWY_INLINE V exp_of_non_positive(D d, V x) {
  const auto lowest = hn::Set(d, kLowestExponent);
  return exp_with_clamped_argument(d, x, hn::IfThenElse(hn::Gt(x, lowest), x, lowest));
}

// The functions below compute in float64 and round once: at most 0.51 ULP of float32.

using HalfVectorTag = hn::Half<FloatTag>;
using DoubleTag = hn::Rebind<double, HalfVectorTag>;
using DoubleVector = hn::Vec<DoubleTag>;

HWY_INLINE DoubleVector widen_lower_half(FloatVector x) {
  return hn::PromoteTo(DoubleTag(), hn::LowerHalf(HalfVectorTag(), x));
}

HWY_INLINE DoubleVector widen_upper_half(FloatVector x) {
  return hn::PromoteTo(DoubleTag(), hn::UpperHalf(HalfVectorTag(), x));
}

HWY_INLINE FloatVector round_to_floats(DoubleVector lower, DoubleVector upper) {
  return hn::Combine(FloatTag(), hn::DemoteTo(HalfVectorTag(), upper),
                     hn::DemoteTo(HalfVectorTag(), lower));
}

// Horner evaluation; coefficients from the highest power down.
template <std::size_t n>
HWY_INLINE DoubleVector evaluate_polynomial(const std::array<double, n>& coefficients,
                                            DoubleVector x) {
  auto sum = hn::Set(DoubleTag(), coefficients[0]);
#pragma GCC unroll 32
  for (std::size_t i = 1; i < n; ++i)
    sum = hn::MulAdd(sum, x, hn::Set(DoubleTag(), coefficients[i]));
  return sum;
}

// Returns 1 / n! for n = highest, highest - step, ..., lowest: the coefficients of exp for step 1,
// or, with alternating signs, of cos and sin for step 2. Factorials up to 17! are exact in float64.
template <int highest, int lowest, int step>
constexpr auto inverse_factorial_coefficients() {
  std::array<double, (highest - lowest) / step + 1> coefficients{};
  for (int n = highest; n >= lowest; n -= step) {
    double factorial = 1.0;
    for (int i = 2; i <= n; ++i) factorial *= i;
    const bool negative = step == 2 && n / 2 % 2 == 1;
    coefficients[static_cast<std::size_t>((highest - n) / step)] =
        (negative ? -1.0 : 1.0) / factorial;
  }
  return coefficients;
}

// erf(x) = x P(x² / 8 - 1) up to |x| = 4, beyond which erf is 1; tools/fit_erf.py fits P.
HWY_INLINE DoubleVector erf(DoubleVector x) {
  static constexpr std::array kCoefficients = {
      -3.55668329896667706e-05, 9.72566718652767299e-05,  -7.77587519760843977e-05,
      1.58769468056328407e-04,  -6.62219823471008853e-04, 1.43721620976526771e-03,
      -2.54222088089733553e-03, 4.74763892609523109e-03,  -8.62234156643427313e-03,
      1.43970921192310801e-02,  -2.24691998618399072e-02, 3.30477502061991696e-02,
      -4.57657877419112707e-02, 5.98889035642353046e-02,  -7.47278125689154193e-02,
      9.02088371441915199e-02,  -1.07710444144199571e-01, 1.31675121664643208e-01,
      -1.76576233293287477e-01, 3.53530995619542099e-01};
  const DoubleTag d;
  const auto four = hn::Set(d, 4.0);
  const auto size = hn::Abs(x);
  const auto within = hn::IfThenElse(hn::Gt(size, four), four, size);  // NaN stays NaN
  const auto s = hn::MulAdd(hn::Mul(within, within), hn::Set(d, 0.125), hn::Set(d, -1.0));
  return hn::CopySign(hn::Mul(within, evaluate_polynomial(kCoefficients, s)), x);
}

// exp(x) for x in [0, 700] by its Taylor series after range reduction.
HWY_INLINE DoubleVector exp_of_positive(DoubleVector x) {
  static constexpr auto kCoefficients = inverse_factorial_coefficients<12, 0, 1>();
  const DoubleTag d;
  const auto round = hn::Set(d, 0x1.8p52);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 0x1.71547652b82fep0), round);
  const auto whole = hn::Sub(shifted, round);
  auto r = hn::NegMulAdd(whole, hn::Set(d, 0x1.62e42fefa39efp-1), x);
  r = hn::NegMulAdd(whole, hn::Set(d, 0x1.abc9e3b39803fp-56), r);
  const hn::RebindToUnsigned<DoubleTag> bits;
  const auto power = hn::BitCast(d, hn::ShiftLeft<52>(hn::Add(hn::BitCast(bits, shifted),
                                                              hn::Set(bits, std::uint64_t{1023}))));
  return hn::Mul(evaluate_polynomial(kCoefficients, r), power);
}

// tanh(x) = 1 - 2 / (exp(2x) + 1); x - x³ / 3 near 0, where the first form cancels.
HWY_INLINE DoubleVector tanh(DoubleVector x) {
  const DoubleTag d;
  const auto ten = hn::Set(d, 10.0);  // tanh is 1 in float32 from 9.1 on
  const auto size = hn::Abs(x);
  const auto within = hn::IfThenElse(hn::Gt(size, ten), ten, size);  // NaN stays NaN
  const auto one = hn::Set(d, 1.0);
  const auto high = hn::Add(exp_of_positive(hn::Add(within, within)), one);
  const auto far = hn::Sub(one, hn::Div(hn::Set(d, 2.0), high));
  const auto cube = hn::Mul(hn::Mul(within, within), within);
  const auto near = hn::MulAdd(cube, hn::Set(d, -1.0 / 3.0), within);
  return hn::CopySign(hn::IfThenElse(hn::Lt(within, hn::Set(d, 0x1p-12)), near, far), x);
}

struct CosSin {
  DoubleVector cos;
  DoubleVector sin;
};

// cos and sin for |x| up to 2^30: Taylor series after subtracting multiples of pi / 2.
HWY_INLINE CosSin cos_sin(DoubleVector x) {
  static constexpr auto kCos = inverse_factorial_coefficients<16, 0, 2>();
  static constexpr auto kSin = inverse_factorial_coefficients<17, 3, 2>();
  const DoubleTag d;
  const hn::RebindToUnsigned<DoubleTag> bits;
  const auto round = hn::Set(d, 0x1.8p52);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 0x1.45f306dc9c883p-1), round);
  const auto turns = hn::Sub(shifted, round);
  auto r = hn::NegMulAdd(turns, hn::Set(d, 0x1.921fb54442d18p0), x);
  r = hn::NegMulAdd(turns, hn::Set(d, 0x1.1a62633145c07p-54), r);
  const auto square = hn::Mul(r, r);
  const auto cos = evaluate_polynomial(kCos, square);
  const auto sin = hn::MulAdd(hn::Mul(square, r), evaluate_polynomial(kSin, square), r);
  // The low bits of `shifted` count quarter turns: odd ones swap cos and sin.
  const auto quarter = hn::BitCast(bits, shifted);
  const auto one = hn::Set(bits, std::uint64_t{1});
  const auto two = hn::Set(bits, std::uint64_t{2});
  const auto odd = hn::RebindMask(d, hn::TestBit(quarter, one));
  const auto cos_sign = hn::ShiftLeft<62>(hn::And(hn::Add(quarter, one), two));
  const auto sin_sign = hn::ShiftLeft<62>(hn::And(quarter, two));
  return {hn::Xor(hn::IfThenElse(odd, sin, cos), hn::BitCast(d, cos_sign)),
          hn::Xor(hn::IfThenElse(odd, cos, sin), hn::BitCast(d, sin_sign))};
}

}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
