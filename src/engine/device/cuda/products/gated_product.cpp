#include "engine/device/cuda/products/gated_product.h"

#include "engine/device/cuda/cuda_devices.h"
#include "engine/device/cuda/cuda_error.h"
#include "engine/device/cuda/products/gated_kernel.h"

namespace qkscope::cuda {

bool has_gated_product(const ModelConfig& model, DType dtype, int device) {
  return gated_kernel_is_built() && is_hopper(device) && dtype_size(dtype) == 2 &&
         model.gated_mlp() && model.activation == Activation::silu && !model.mlp_bias &&
         model.experts.count == 0 && model.d_mlp % 32 == 0 && model.d_model % 8 == 0;
}

void multiply_gated(const GatedProduct& p, cudaStream_t stream) {
  if (p.rows == 0) return;
  check(gated_product({.x = p.x,
                       .weight = p.weight,
                       .y = p.y,
                       .rows = static_cast<int>(p.rows),
                       .in = static_cast<int>(p.in),
                       .n = static_cast<int>(p.n),
                       .apart = p.apart,
                       .bf16 = p.dtype == DType::bf16,
                       .device = p.device,
                       .multiprocessors = multiprocessors(p.device)},
                      stream),
        "multiply by the MLP's weights");
}

}  // namespace qkscope::cuda
