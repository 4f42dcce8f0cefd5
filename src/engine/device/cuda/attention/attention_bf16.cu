#include "engine/device/cuda/attention/attention_16bit.cuh"

namespace qkscope::cuda {

void attention_bf16(const AttentionArguments& arguments, cudaStream_t stream) {
  attention_16bit<__nv_bfloat16>(arguments, stream);
}

}  // namespace qkscope::cuda
