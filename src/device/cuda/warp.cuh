// What kernels say to the lanes of a warp.
#pragma once

namespace qkscope::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

}  // namespace qkscope::cuda
