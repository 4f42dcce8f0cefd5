// The gate of the MLP and the cap on logits.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "core/dtype.h"
#include "model/config.h"

namespace qkscope::cuda {

// gate = activation(gate) * up, where each row of gate_up (rows, 2 n) holds n of gate, then n of
// up.
void gate(Activation activation, void* gate_up, std::int64_t rows, std::int64_t n, DType dtype,
          cudaStream_t stream);

// x = cap * tanh(x / cap), of `count` values
void soft_cap(void* x, std::int64_t count, float cap, DType dtype, cudaStream_t stream);

}  // namespace qkscope::cuda
