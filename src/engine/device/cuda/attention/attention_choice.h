// Which kernel attends: FlashInfer's on Hopper where it has one for the heads, cuDNN's on other
// GPUs and for other heads, and our own for everything that neither knows. The choice follows from
// the GPU and the model alone, so that two runs take the same.
#pragma once

#include <cstdint>

#include "base/core/dtype.h"

namespace qkscope::cuda {

enum class AttentionKernel : std::uint8_t { flash_infer, cudnn, own };

struct AttentionCase {
  int capability = 0;  // of the GPU: 90 is Hopper
  DType dtype = DType::bf16;
  std::int64_t d_head = 0;
  bool softcap = false;      // scores have a cap
  bool sinks = false;        // the sum of weights has one more term
  bool own_scale = false;    // the layer's is not the model's
  bool chosen_rows = false;  // queries are only some of the rows
};

// What this build holds.
struct AttentionLibraries {
  bool flash_infer = true;
  bool cudnn = true;
};

// cuDNN may still have no kernel for a shape; then it is ours.
AttentionKernel choose_attention(const AttentionCase& attention, const AttentionLibraries& has);

}  // namespace qkscope::cuda
