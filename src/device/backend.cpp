#include "device/backend.h"

#include "device/cpu/cpu_backend.h"
#include "device/cuda/cuda_backend.h"

namespace qkscope {

std::unique_ptr<Backend> make_backend(const LoadedCheckpoint& model,
                                      const BackendOptions& options) {
  if (options.device.kind == Device::Kind::cuda) return make_cuda_backend(model, options);
  return std::make_unique<CpuBackend>(model);
}

}  // namespace qkscope
