// Stub for builds without cuDNN: attention always uses our own kernel.
#include "engine/device/cuda/attention/fused_attention.h"

namespace qkscope::cuda {

struct FusedAttention::Library {};

FusedAttention::FusedAttention(const ModelConfig&, DType, int, cudaStream_t) {}
FusedAttention::~FusedAttention() = default;

void FusedAttention::begin(std::span<const Sequence>) {}

bool FusedAttention::attend(const FusedAttentionArguments&) {
  return false;
}

}  // namespace qkscope::cuda
