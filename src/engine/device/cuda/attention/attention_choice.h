// Choice of the attention kernel: FlashInfer's on Hopper where it has an instance for the head
// size, cuDNN's on other GPUs and for other head sizes, and our own for everything else. The choice
// depends on GPU and model alone, so repeated runs use the same kernel.
#pragma once

#include <cstdint>

#include "base/core/dtype.h"

namespace qkscope::cuda {

enum class AttentionKernel : std::uint8_t { flash_infer, cudnn, own };

struct AttentionCase {
  int capability = 0;  // of the GPU: 90 is Hopper
  DType dtype = DType::bf16;
  std::int64_t d_head = 0;
  bool softcap = false;      // scores are soft-capped
  bool sinks = false;        // learned attention sinks
  bool own_scale = false;    // the layer's scale differs from the model's
  bool chosen_rows = false;  // queries are a subset of the rows
};

// Optional kernels that were compiled into this build.
struct AttentionLibraries {
  bool flash_infer = true;
  bool cudnn = true;
};

// cuDNN may still lack a kernel for a shape; the caller then falls back to our own.
AttentionKernel choose_attention(const AttentionCase& attention, const AttentionLibraries& has);

}  // namespace qkscope::cuda
