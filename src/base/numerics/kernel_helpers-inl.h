// Helpers for kernel files, which are compiled once per SIMD target (base/core/cpu_target.h).

// Include guard that lets Highway include this header once per target.
#if defined(QKSCOPE_KERNEL_HELPERS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKSCOPE_KERNEL_HELPERS_INL_H
#undef QKSCOPE_KERNEL_HELPERS_INL_H
#else
#define QKSCOPE_KERNEL_HELPERS_INL_H
#endif

#include <cstdint>
#include <type_traits>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {

// Calls body(std::integral_constant<int, n>()) with n = min(count, kMost), because the compiler
// keeps an array of sums in registers only if its length is a compile-time constant.
template <int kMost, typename Body>
HWY_INLINE void call_with_compile_time_count(std::int64_t count, const Body& body) {
  if constexpr (kMost > 1)
    if (count < kMost) return call_with_compile_time_count<kMost - 1>(count, body);
  body(std::integral_constant<int, kMost>());
}

// Returns the sum of all lanes. Halves are added pairwise, so the result does not depend on the
// number of lanes per vector.
template <typename Doubles, int kVectors>
HWY_INLINE double sum_all_lanes(Doubles d,
                                const hwy::HWY_NAMESPACE::Vec<Doubles> (&sums)[kVectors]) {
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
