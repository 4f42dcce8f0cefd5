#include "engine/device/cuda/cuda_devices.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/pass_kernels.h"

namespace qkscope::cuda {
namespace {

int device_attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "ask the GPU");
  return value;
}

void synchronize(Device device) {
  if (device.kind == Device::Kind::cpu) return;
  check(cudaSetDevice(device.index), "use the GPU");
  check(cudaDeviceSynchronize(), "wait for the GPU");
}

}  // namespace

std::string gpu_incompatibility_reason(int device) {
  if (const auto status = cudaSetDevice(device); status != cudaSuccess) {
    cudaGetLastError();  // clears the error: "no device" is a valid answer
    return fmt::format("the GPU cannot be used: {}", cudaGetErrorString(status));
  }
  if (has_code_for_gpu()) return "";
  return fmt::format(
      "the GPU has compute capability {}.{}, and this build has code for " QKSCOPE_CUDA_CODE
      " (CMAKE_CUDA_ARCHITECTURES); build it where the GPU is, or with -DQKSCOPE_CUDA_ALL=ON",
      device_attribute(cudaDevAttrComputeCapabilityMajor, device),
      device_attribute(cudaDevAttrComputeCapabilityMinor, device));
}

bool is_hopper(int device) {
  return compute_capability(device) == 90;
}

int compute_capability(int device) {
  return 10 * device_attribute(cudaDevAttrComputeCapabilityMajor, device) +
         device_attribute(cudaDevAttrComputeCapabilityMinor, device);
}

int multiprocessor_count(int device) {
  return device_attribute(cudaDevAttrMultiProcessorCount, device);
}

std::int64_t free_memory_bytes(int device) {
  std::size_t free = 0, total = 0;
  check(cudaSetDevice(device), "use the GPU");
  check(cudaMemGetInfo(&free, &total), "ask for free memory");
  return static_cast<std::int64_t>(free);
}

void copy_values(TensorView to, ConstTensorView from) {
  synchronize(from.device());
  synchronize(to.device());
  check(cudaMemcpy(to.bytes(), from.bytes(), to.size_bytes(), cudaMemcpyDefault), "copy values");
  synchronize(to.device());
}

}  // namespace qkscope::cuda
