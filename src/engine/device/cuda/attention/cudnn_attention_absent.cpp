// Stub for builds without cuDNN: attention always uses the built-in kernel.
#include "engine/device/cuda/attention/attention.h"

namespace qkscope::cuda {

struct CudnnAttention::Library {};

CudnnAttention::CudnnAttention(const ModelConfig&, DType, int, cudaStream_t) {}
CudnnAttention::~CudnnAttention() = default;

void CudnnAttention::set_sequences(std::span<const Sequence>) {}

bool CudnnAttention::attend(const AttentionArguments&) {
  return false;
}

}  // namespace qkscope::cuda
