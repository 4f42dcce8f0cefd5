// Instances of the template in hopper_kernel.cuh, one file per head size.
#pragma once

#include "engine/device/cuda/attention/hopper_kernel.h"

namespace qkscope::cuda {

struct HopperHeads {
  std::int64_t d_head = 0;
  bool softcap = false;
  int tile_rows = 0;  // query rows of a tile
  cudaError_t (*attend)(const HopperArguments&, cudaStream_t) = nullptr;
};

HopperHeads hopper_heads_64();
HopperHeads hopper_heads_64_in_long_texts();
HopperHeads hopper_heads_96();
HopperHeads hopper_heads_128();
HopperHeads hopper_heads_256();
HopperHeads hopper_capped_heads_128();
HopperHeads hopper_capped_heads_256();

}  // namespace qkscope::cuda
