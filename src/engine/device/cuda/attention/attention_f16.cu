#include "engine/device/cuda/attention/attention_16bit.cuh"

namespace qkscope::cuda {

void attention_f16(const AttentionArguments& arguments, cudaStream_t stream) {
  attention_16bit<__half>(arguments, stream);
}

}  // namespace qkscope::cuda
