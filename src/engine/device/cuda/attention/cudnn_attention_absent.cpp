// Stub for builds without cuDNN: attention always uses the built-in kernel.
#include "engine/device/cuda/attention/attention.h"

namespace qkscope::cuda {

struct CudnnAttention::Impl {};

CudnnAttention::CudnnAttention(const ModelConfig&, DType, int, cudaStream_t) {}
CudnnAttention::~CudnnAttention() = default;

void CudnnAttention::set_sequences(std::span<const Sequence>) {}

bool CudnnAttention::try_attend(const AttentionArguments&) {
  return false;
}

}  // namespace qkscope::cuda
