// The end of sums that run side by side in vectors, for files that are compiled for every CPU
// target (see core/cpu_target.h).

// Read once per target.
#if defined(QKSCOPE_NUMERICS_RUNNING_SUMS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKSCOPE_NUMERICS_RUNNING_SUMS_INL_H
#undef QKSCOPE_NUMERICS_RUNNING_SUMS_INL_H
#else
#define QKSCOPE_NUMERICS_RUNNING_SUMS_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {

// Adds them up, the second half to the first until one is left: the same bytes however many lanes a
// vector has.
template <typename Doubles, int kVectors>
HWY_INLINE double total_of(Doubles d, const hwy::HWY_NAMESPACE::Vec<Doubles> (&sums)[kVectors]) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int kLanes = hn::MaxLanes(Doubles());
  hn::Vec<Doubles> sum[kVectors];
  for (int v = 0; v < kVectors; ++v) sum[v] = sums[v];
#pragma GCC unroll 4
  for (int half = kVectors / 2; half > 0; half /= 2) {
#pragma GCC unroll 4
    for (int v = 0; v < half; ++v) sum[v] = hn::Add(sum[v], sum[v + half]);
  }
  double part[kLanes];
  hn::StoreU(sum[0], d, part);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) part[i] += part[i + half];
  return part[0];
}

}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // read once per target
