#include <cuda_runtime.h>

#include "core/error.h"
#include "device/cuda/cuda_backend.h"
#include "device/cuda/status.h"
#include "device/device.h"

namespace qkscope {
namespace {

void wait_for(Device device) {
  if (device.kind == Device::Kind::cpu) return;
  cuda::check(cudaSetDevice(device.index), "use the card");
  cuda::check(cudaDeviceSynchronize(), "wait for the card");
}

}  // namespace

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();  // no driver or no card is an answer, not an error
  return 0;
}

std::string why_not_card(int card) {
  constexpr int kOldest = 8;  // Ampere, see cmake/Cuda.cmake
  int major = 0;
  int minor = 0;
  cuda::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, card),
              "ask for the card's generation");
  cuda::check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, card),
              "ask for the card's generation");
  if (major >= kOldest) return "";
  return fmt::format("the card has compute capability {}.{}, and {}.0 or later is needed", major,
                     minor, kOldest);
}

std::string why_no_cuda() {
  int count = 0;
  const auto status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  return status == cudaSuccess
             ? "there is no NVIDIA card in this machine"
             : std::string("no NVIDIA card can be used: ") + cudaGetErrorString(status);
}

std::int64_t free_memory(Device device) {
  if (device.kind == Device::Kind::cpu) return 0;
  std::size_t free = 0;
  std::size_t total = 0;
  cuda::check(cudaSetDevice(device.index), "use the card");
  cuda::check(cudaMemGetInfo(&free, &total), "ask for free memory");
  return static_cast<std::int64_t>(free);
}

void copy_with_card(TensorView to, ConstTensorView from) {
  wait_for(from.device());
  wait_for(to.device());
  cuda::check(cudaMemcpy(to.bytes(), from.bytes(), to.size_bytes(), cudaMemcpyDefault),
              "copy values");
  wait_for(to.device());
}

}  // namespace qkscope
