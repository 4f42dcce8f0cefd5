// Parts of the CUDA backend that the steps of a forward pass share.
#pragma once

#include "engine/device/cuda/memory/activations.h"
#include "engine/device/cuda/pass_kernels.h"
#include "engine/device/cuda/pass_rows.h"
#include "engine/device/cuda/products/products.h"

namespace qkscope::cuda {

struct PassContext {
  const ModelConfig& model;
  DType dtype;  // of weights and activations
  cudaStream_t stream;
  MatrixMultiplier& products;
  ActiveRows& rows;
  Activations& activations;
  ActivationCopier& copies;

  // Multiplies the active rows of x by a weight matrix.
  void multiply(const void* x, const DeviceLinear& linear, void* y,
                std::int64_t y_stride = 0) const {
    products.multiply(
        {.x = x, .linear = linear, .y = y, .rows = rows.count(), .y_stride = y_stride});
  }
  // Normalises the active rows, or a.rows rows if that is set.
  void normalize(NormArguments a, double eps) const {
    if (a.rows == 0) a.rows = rows.count();
    a.eps = static_cast<float>(eps);
    a.dtype = dtype;
    normalize_rows(a, stream);
  }
  void embed(EmbedArguments a) const {
    a.dtype = dtype;
    cuda::embed(a, stream);
  }
  void copy(CopyRowsArguments a) const {
    a.dtype = dtype;
    copy_rows(a, stream);
  }
  void* reserve(DeviceMemory& memory, std::int64_t elements, const char* what) const {
    return memory.reserve(elements * element_bytes(dtype), what);
  }
};

}  // namespace qkscope::cuda
