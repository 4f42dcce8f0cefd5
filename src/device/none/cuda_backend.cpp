// Stands where the CUDA backend would be in a build without nvcc.
#include "device/cuda/cuda_backend.h"

#include "core/error.h"
#include "device/device.h"

namespace qkscope {

std::unique_ptr<Backend> make_cuda_backend(const LoadedCheckpoint&, const BackendOptions& options) {
  bad_input("device {}: {}; use cpu", device_name(options.device), why_no_cuda());
}

void copy_with_card(TensorView, ConstTensorView) {
  failure("copy to or from a card: {}", why_no_cuda());
}

int cuda_device_count() {
  return 0;
}

std::string why_not_card(int) {
  return why_no_cuda();
}

std::int64_t free_memory(Device) {
  return 0;
}

std::string why_no_cuda() {
  return "this build has no CUDA backend (nvcc was not found when it was configured)";
}

}  // namespace qkscope
