#include "numerics/spectrum_kernels.h"

#include <algorithm>

#include "core/cpu_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/spectrum_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Four = hn::CappedTag<float, 4>;
using Vector = hn::Vec<Four>;

HWY_INLINE const float* floats(const FourComplex* at) {
  return reinterpret_cast<const float*>(at);
}
HWY_INLINE float* floats(FourComplex* at) {
  return reinterpret_cast<float*>(at);
}

HWY_INLINE Vector narrowed(const double (&values)[4]) {
  float narrow[4];
  for (int i = 0; i < 4; ++i) narrow[i] = static_cast<float>(values[i]);
  return hn::LoadU(Four(), narrow);
}

void spread_kernel(std::span<const FourValues> values, const float* taps,
                   const std::uint32_t* phase, const std::uint32_t* start, FourComplex* signal) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Vector re = narrowed(values[i].re);
    const Vector im = narrowed(values[i].im);
    const float* const weight = taps + phase[i] * kSpreadTaps;
    float* const to = floats(signal + start[i]);
#pragma GCC unroll 8
    for (std::int64_t m = 0; m < kSpreadTaps; ++m) {
      const Vector by = hn::Set(Four(), weight[m]);
      hn::Store(hn::MulAdd(by, re, hn::Load(Four(), to + 8 * m)), Four(), to + 8 * m);
      hn::Store(hn::MulAdd(by, im, hn::Load(Four(), to + 8 * m + 4)), Four(), to + 8 * m + 4);
    }
  }
}

HWY_INLINE Vector power_of(Vector re, Vector im) {
  return hn::MulAdd(re, re, hn::Mul(im, im));
}

HWY_INLINE Vector power_at(const float* point) {
  return power_of(hn::Load(Four(), point), hn::Load(Four(), point + 4));
}

void sort_kernel(const Fft& fft, const FourComplex* signal, const float* gain, FourComplex* points,
                 FourFloats* groups) {
  // Values an eighth of the grid apart lie in neighbouring places: taken one after the other, every
  // cache line is read once.
  const std::size_t size = fft.size();
  const std::size_t eighth = size / 8;
  for (std::size_t low = 0; low < eighth; low += 8)
    for (std::size_t k = low; k < size; k += eighth) {
      const float* const from = floats(signal + fft.place(k));
      float* const to = floats(points + k);
      Vector largest = hn::Zero(Four());
#pragma GCC unroll 8
      for (std::size_t r = 0; r < 8; ++r) {
        const Vector by = hn::Set(Four(), gain[k + r]);
        const float* const value = from + 8 * r * eighth;
        const Vector re = hn::Mul(hn::Load(Four(), value), by);
        const Vector im = hn::Mul(hn::Load(Four(), value + 4), by);
        hn::Store(re, Four(), to + 8 * r);
        hn::Store(im, Four(), to + 8 * r + 4);
        largest = hn::Max(largest, power_of(re, im));
      }
      hn::Store(largest, Four(), reinterpret_cast<float*>(groups + k / 8));
    }
}

HWY_INLINE Vector power_after(const float* point, const float* weights) {
  Vector re = hn::Zero(Four());
  Vector im = hn::Zero(Four());
  const float* const from = point - 3 * 8;
#pragma GCC unroll 8
  for (std::size_t j = 0; j < 8; ++j) {
    const Vector by = hn::Set(Four(), weights[j]);
    re = hn::MulAdd(by, hn::Load(Four(), from + 8 * j), re);
    im = hn::MulAdd(by, hn::Load(Four(), from + 8 * j + 4), im);
  }
  return power_of(re, im);
}

void between_kernel(const FourComplex* points, const float* weights, FourFloats& power) {
  hn::Store(power_after(floats(points), weights), Four(), reinterpret_cast<float*>(&power));
}

HWY_INLINE bool any_above(Vector power, Vector limit) {
  return !hn::AllFalse(Four(), hn::Gt(power, limit));
}

HWY_INLINE Vector loaded(const FourFloats& values) {
  return hn::Load(Four(), reinterpret_cast<const float*>(&values));
}

// Not inlined: points to be kept are few, and the loop that finds them is short.
HWY_NOINLINE void keep(std::int64_t half, Vector power, std::vector<HighPoint>& found) {
  HighPoint point;
  point.half = half;
  hn::Store(power, Four(), reinterpret_cast<float*>(&point.power));
  found.push_back(point);
}

void high_kernel(const FourComplex* points, std::span<const FourFloats> groups,
                 const float* weights, const HighPowers& wanted, std::vector<HighPoint>& found) {
  const Vector least = loaded(wanted.least);
  const Vector near = loaded(wanted.near);
  // Whether nothing in this group of eight or at the beginning of the next is high.
  const auto is_low = [&](std::size_t group) HWY_ATTR {
    const FourFloats& next = groups[group + 1 == groups.size() ? 0 : group + 1];
    return !any_above(hn::Max(loaded(groups[group]), loaded(next)), near);
  };
  for (auto i = wanted.begin; i < wanted.end;) {
    if (i % 8 == 0 && i + 8 <= wanted.end && is_low(static_cast<std::size_t>(i / 8))) {
      i += 8;
      continue;
    }
    const auto end = std::min(wanted.end, i / 8 * 8 + 8);
    Vector here = power_at(floats(points + i));
    for (; i < end; ++i) {
      const float* const point = floats(points + i);
      const Vector next = power_at(point + 8);
      if (any_above(hn::Max(here, next), near)) {
        if (any_above(here, least)) keep(2 * i, here, found);
        const Vector between = power_after(point, weights);
        if (any_above(between, least)) keep(2 * i + 1, between, found);
      }
      here = next;
    }
  }
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

HWY_EXPORT(spread_kernel);
HWY_EXPORT(sort_kernel);
HWY_EXPORT(between_kernel);
HWY_EXPORT(high_kernel);

}  // namespace

void spread_values(std::span<const FourValues> values, const float* taps,
                   const std::uint32_t* phase, const std::uint32_t* start, FourComplex* signal) {
  QKSCOPE_DISPATCH(spread_kernel)(values, taps, phase, start, signal);
}

void sort_points(const Fft& fft, const FourComplex* signal, const float* gain, FourComplex* points,
                 FourFloats* groups) {
  QKSCOPE_DISPATCH(sort_kernel)(fft, signal, gain, points, groups);
}

FourFloats power_between(const FourComplex* points, const float* weights) {
  FourFloats power;
  QKSCOPE_DISPATCH(between_kernel)(points, weights, power);
  return power;
}

void high_powers(const FourComplex* points, std::span<const FourFloats> groups,
                 const float* weights, const HighPowers& wanted, std::vector<HighPoint>& found) {
  QKSCOPE_DISPATCH(high_kernel)(points, groups, weights, wanted, found);
}

}  // namespace qkscope
#endif
