#include "backend/backend.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"

namespace qkscope {

std::unique_ptr<Backend> make_backend(const Model& model, const BackendOptions& options) {
  if (options.device.kind == Device::Kind::cuda) return make_cuda_backend(model, options);
  return std::make_unique<CpuBackend>(model);
}

}  // namespace qkscope
