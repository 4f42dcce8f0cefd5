// The instructions that the library computes with on the CPU. Its kernels are compiled for several
// sets of them ("targets"), and the best one that the machine has is taken at run time. All targets
// with fused multiply-adds give the same bytes.
#pragma once

#include <string>
#include <vector>

#include "qkscope/version.h"

namespace qkscope {

// The targets that this build and this machine have, best first: "avx512", "avx2" and "sse4" on
// x86-64, "neon" on Arm.
QKSCOPE_API std::vector<std::string> cpu_targets();

// The one in use: the best, or the one that the environment variable QKSCOPE_CPU names. Throws bad
// input when that is none of cpu_targets().
QKSCOPE_API std::string cpu_target();

}  // namespace qkscope
