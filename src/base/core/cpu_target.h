// Compiles a kernel for every SIMD target (qkscope/experimental/cpu.h) and dispatches to the one in
// use, both through Highway. Highway's headers compile slowly, so only kernel files include them;
// plane_units.cpp is a short example. A kernel file includes itself once per target
// (HWY_TARGET_INCLUDE), defines name_kernel() in qkscope::HWY_NAMESPACE, and exports name() with
// QKSCOPE_EXPORT_KERNEL under #if HWY_ONCE.
//
// Standard and project headers are included before foreach_target.h. The project is compiled with
// -ffp-contract=off; kernels request fused multiply-adds explicitly (hn::MulAdd).
#pragma once

#include <atomic>
#include <string_view>

#include "qkscope/experimental/cpu.h"

namespace qkscope {

// Selects the SIMD target named by QKSCOPE_CPU, else the best one. Later calls have no effect.
void initialize_cpu_target();

// Selects a target by name, for tests that run under each one. Throws a bad-input error if the name
// is not in cpu_targets(). Must not be called while a kernel runs.
void force_cpu_target(std::string_view name);

// Returns whether a SIMD target has FMA. Results are byte-identical across all targets with FMA.
bool cpu_target_has_fma(std::string_view name);

namespace detail {
extern std::atomic<bool> cpu_target_is_chosen;
}

inline void initialize_cpu_target_once() {
  if (!detail::cpu_target_is_chosen.load(std::memory_order_acquire)) initialize_cpu_target();
}

// Like HWY_DYNAMIC_DISPATCH, but first applies the environment variable QKSCOPE_CPU.
#define QKSCOPE_DISPATCH(function) \
  (::qkscope::initialize_cpu_target_once(), HWY_DYNAMIC_DISPATCH(function))

// Defines the function `name`, which calls `name`_kernel of the selected target. `parameters` and
// `arguments` are parenthesised lists.
#define QKSCOPE_EXPORT_KERNEL(Result, name, parameters, arguments)                             \
  HWY_EXPORT(name##_kernel);                                                                   \
  Result name parameters {                                                                     \
    return QKSCOPE_DISPATCH(name##_kernel) arguments; /* NOLINT(bugprone-macro-parentheses) */ \
  }                                                                                            \
  static_assert(true)

// Function multiversioning for plain loops: AVX-512, AVX2 and baseline x86-64, with bit-identical
// results (-ffp-contract=off). The dynamic loader selects the version (ifunc), independently of
// QKSCOPE_CPU. Sanitizers do not support ifuncs.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define QKSCOPE_VECTORIZE_FOR_CPU \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define QKSCOPE_VECTORIZE_FOR_CPU
#endif

}  // namespace qkscope
