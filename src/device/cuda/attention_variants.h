// The kernels behind attention(), one per element type. Arguments are checked, queries > 0.
#pragma once

#include "device/cuda/attention_kernel.h"

namespace qkscope::cuda {

void attention_bf16(const AttentionArguments& arguments, cudaStream_t stream);
void attention_f16(const AttentionArguments& arguments, cudaStream_t stream);
void attention_f32(const AttentionArguments& arguments, cudaStream_t stream);

}  // namespace qkscope::cuda
