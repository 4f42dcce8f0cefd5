// Measures the sustained FLOP/s of matrix products on the GPU.
#pragma once

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "engine/device/cuda/products/products.h"

namespace qkscope::cuda {

// Multiplies square random matrices (up to 8192, less if memory is short) for about `seconds`
// seconds, so that the GPU settles at its power limit.
double product_rate(Products& products, DType dtype, double seconds, cudaStream_t stream);

}  // namespace qkscope::cuda
