#include "device/cuda/cuda_devices.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "device/cuda/cuda_error.h"

namespace qkscope::cuda {
namespace {

void wait_for(Device device) {
  if (device.kind == Device::Kind::cpu) return;
  check(cudaSetDevice(device.index), "use the GPU");
  check(cudaDeviceSynchronize(), "wait for the GPU");
}

}  // namespace

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver or no GPU is an answer, not an error
  return 0;
}

std::string why_no_device() {
  int count = 0;
  const auto status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  return status == cudaSuccess
             ? "there is no NVIDIA GPU in this machine"
             : std::string("no NVIDIA GPU can be used: ") + cudaGetErrorString(status);
}

std::string why_unusable(int device) {
  constexpr int kOldest = 8;  // Ampere, see cmake/Cuda.cmake
  int major = 0;
  int minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "ask for the GPU's generation");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "ask for the GPU's generation");
  if (major >= kOldest) return "";
  return fmt::format("the GPU has compute capability {}.{}, and {}.0 or later is needed", major,
                     minor, kOldest);
}

std::int64_t free_memory(int device) {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaSetDevice(device), "use the GPU");
  check(cudaMemGetInfo(&free, &total), "ask for free memory");
  return static_cast<std::int64_t>(free);
}

void copy_values(TensorView to, ConstTensorView from) {
  wait_for(from.device());
  wait_for(to.device());
  check(cudaMemcpy(to.bytes(), from.bytes(), to.size_bytes(), cudaMemcpyDefault), "copy values");
  wait_for(to.device());
}

}  // namespace qkscope::cuda
