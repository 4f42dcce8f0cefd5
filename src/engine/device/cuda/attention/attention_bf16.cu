#include "engine/device/cuda/attention/attention_16bit.cuh"

template void qkscope::cuda::compute_attention_16bit<__nv_bfloat16>(
    const AttentionArguments& arguments, cudaStream_t stream);
