#include "engine/device/cuda/attention/hopper_kernel.cuh"

namespace qkscope::cuda {

HopperHeads hopper_heads_256() {
  return hopper_heads<PlainScores, 256, 128, 64>();
}

}  // namespace qkscope::cuda
