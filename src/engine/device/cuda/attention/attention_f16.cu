#include "engine/device/cuda/attention/attention_16bit.cuh"

template void qkscope::cuda::compute_attention_16bit<__half>(const AttentionArguments& arguments,
                                                             cudaStream_t stream);
