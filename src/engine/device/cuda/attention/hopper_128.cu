#include "engine/device/cuda/attention/hopper_kernel.cuh"

namespace qkscope::cuda {

HopperHeads hopper_heads_128() {
  return hopper_heads<PlainScores, 128, 128, 128>();
}

}  // namespace qkscope::cuda
