// Numbers of rows or columns as constants, for files that are compiled for every CPU target (see
// core/cpu_target.h): sums stay in registers only where the compiler knows how many there are.

// Read once per target.
#if defined(QKSCOPE_NUMERICS_COUNTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKSCOPE_NUMERICS_COUNTS_INL_H
#undef QKSCOPE_NUMERICS_COUNTS_INL_H
#else
#define QKSCOPE_NUMERICS_COUNTS_INL_H
#endif

#include <cstdint>
#include <type_traits>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {

// Calls body(std::integral_constant<int, n>()) with n = count, at most kMost.
template <int kMost, typename Body>
HWY_INLINE void with_count(std::int64_t count, const Body& body) {
  if constexpr (kMost > 1)
    if (count < kMost) return with_count<kMost - 1>(count, body);
  body(std::integral_constant<int, kMost>());
}

}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // read once per target
