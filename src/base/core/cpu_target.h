// How a kernel is compiled for every target (qkscope/experimental/cpu.h) and the right one is
// called. Highway does both; its headers are dear and stay in the files of kernels, which look like
// this:
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "ops/scale.cpp"  // this file: it is read once per target
//   #include <hwy/foreach_target.h>
//   #include <hwy/highway.h>
//
//   HWY_BEFORE_NAMESPACE();
//   namespace qkscope::HWY_NAMESPACE {
//   void scale_kernel(float* values, std::int64_t count, float factor) { ... }
//   }  // namespace qkscope::HWY_NAMESPACE
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   namespace qkscope {
//   HWY_EXPORT(scale_kernel);
//   void scale(std::span<float> values, float factor) {
//     QKSCOPE_DISPATCH(scale_kernel)(values.data(), std::ssize(values), factor);
//   }
//   }  // namespace qkscope
//   #endif
//
// Headers of the standard library and of ours come before foreach_target.h. The project is compiled
// without contraction of a * b + c: what shall be fused says so (hn::MulAdd).
#pragma once

#include <atomic>
#include <string_view>

#include "qkscope/experimental/cpu.h"

namespace qkscope {

// Takes the target of QKSCOPE_CPU, else the best; once per process.
void choose_cpu_target();

// Takes the named target from now on, which must be one of cpu_targets(); bad input if not. For
// tests, which run under each. Not to be called while something runs.
void use_cpu_target(std::string_view name);

// Whether the target has fused multiply-adds. Those that have give the same bytes.
bool has_fused_multiply_add(std::string_view name);

namespace detail {
extern std::atomic<bool> cpu_target_is_chosen;
}

inline void ensure_cpu_target() {
  if (!detail::cpu_target_is_chosen.load(std::memory_order_acquire)) choose_cpu_target();
}

// HWY_DYNAMIC_DISPATCH, after QKSCOPE_CPU was read.
#define QKSCOPE_DISPATCH(function) (::qkscope::ensure_cpu_target(), HWY_DYNAMIC_DISPATCH(function))

}  // namespace qkscope
