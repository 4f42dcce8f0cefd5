// Stands where the CUDA backend and its devices would be in a build without nvcc.
#include "device/cuda/cuda_backend.h"

#include "core/error.h"
#include "device/cuda/cuda_devices.h"

namespace qkscope {

std::unique_ptr<Backend> make_cuda_backend(const LoadedCheckpoint&, const BackendOptions& options) {
  bad_input("device {}: {}; use cpu", device_name(options.device), cuda::why_no_device());
}

namespace cuda {

int device_count() {
  return 0;
}

std::string why_no_device() {
  return "this build has no CUDA backend (nvcc was not found when it was configured)";
}

std::string why_unusable(int) {
  return why_no_device();
}

std::int64_t free_memory(int) {
  return 0;
}

void copy_values(TensorView, ConstTensorView) {
  failure("copy to or from a GPU: {}", why_no_device());
}

}  // namespace cuda
}  // namespace qkscope
