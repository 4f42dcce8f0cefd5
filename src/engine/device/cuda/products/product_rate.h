// How many FLOP/s the GPU reaches in matrix products.
#pragma once

#include <cuda_runtime.h>

#include "base/core/dtype.h"
#include "engine/device/cuda/products/products.h"

namespace qkscope::cuda {

// Square products of random values, as large as 8192 where memory is free for them, for about so
// many seconds: a GPU under load slows down to its power limit.
double product_rate(Products& products, DType dtype, double seconds, cudaStream_t stream);

}  // namespace qkscope::cuda
