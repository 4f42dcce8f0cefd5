#include "engine/device/cuda/attention/hopper_kernel.cuh"

namespace qkscope::cuda {

HopperHeads hopper_heads_96() {
  return hopper_heads<PlainScores, 96, 192, 96>();
}

}  // namespace qkscope::cuda
