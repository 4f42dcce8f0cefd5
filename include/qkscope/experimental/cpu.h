// SIMD targets of the CPU kernels. Kernels are compiled for several instruction sets ("targets")
// and the best one that the CPU supports is chosen at run time. All targets with fused
// multiply-adds produce identical bytes.
#pragma once

#include <string>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

// Returns the targets that both the build and the CPU support, best first: "avx512", "avx2" and
// "sse4" on x86-64, "neon" on Arm.
QKSCOPE_API std::vector<std::string> cpu_targets();

// Returns the SIMD target in use: the environment variable QKSCOPE_CPU if set, else the best
// target. Throws a bad-input error if QKSCOPE_CPU is not in cpu_targets().
QKSCOPE_API std::string cpu_target();

}  // namespace qkscope
