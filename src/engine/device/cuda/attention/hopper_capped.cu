#include "engine/device/cuda/attention/hopper_kernel.cuh"

namespace qkscope::cuda {

HopperHeads hopper_capped_heads_128() {
  return hopper_heads<CappedScores, 128, 128, 128>();
}

HopperHeads hopper_capped_heads_256() {
  return hopper_heads<CappedScores, 256, 128, 64>();
}

}  // namespace qkscope::cuda
