#include <algorithm>
#include <limits>

#include "engine/device/cuda/compare.h"
#include "engine/device/cuda/cuda_error.h"
#include "engine/device/cuda/memory/device_memory.h"

namespace qkscope::cuda {
namespace {

__global__ void compare_kernel(const std::uint32_t* a, const std::uint32_t* b, std::int64_t count,
                               int* differs) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    if (a[i] != b[i]) *differs = 1;  // a benign race: every writer stores the same value
}

struct Clock {
  Clock() {
    check(cudaEventCreate(&begin), "create an event");
    check(cudaEventCreate(&end), "create an event");
  }
  ~Clock() {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
};

}  // namespace

bool same_bytes(const void* a, const void* b, std::int64_t bytes, cudaStream_t stream) {
  DeviceBlock flag;
  auto* differs = static_cast<int*>(flag.reserve(sizeof(int), "a comparison"));
  check(cudaMemsetAsync(differs, 0, sizeof(int), stream), "clear a flag");
  compare_kernel<<<1024, 256, 0, stream>>>(static_cast<const std::uint32_t*>(a),
                                           static_cast<const std::uint32_t*>(b), bytes / 4,
                                           differs);
  check_launch("compare values");
  int found = 0;
  check(cudaMemcpyAsync(&found, differs, sizeof found, cudaMemcpyDeviceToHost, stream),
        "read a comparison");
  check(cudaStreamSynchronize(stream), "compare values");
  return found == 0;
}

bool has_code_for_gpu() {
  cudaFuncAttributes attributes{};
  const auto status = cudaFuncGetAttributes(&attributes, compare_kernel);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction ||
      status == cudaErrorUnsupportedPtxVersion) {
    cudaGetLastError();  // clears the error: a failed launch is the answer here
    return false;
  }
  check(status, "look for the kernels of the GPU");
  return true;
}

double seconds_of(const std::function<void()>& run, int repeats, cudaStream_t stream) {
  const Clock clock;
  float best = std::numeric_limits<float>::max();
  for (int i = 0; i < repeats; ++i) {
    check(cudaEventRecord(clock.begin, stream), "time a product");
    run();
    check(cudaEventRecord(clock.end, stream), "time a product");
    check(cudaEventSynchronize(clock.end), "time a product");
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, clock.begin, clock.end), "time a product");
    best = std::min(best, milliseconds);
  }
  return static_cast<double>(best) / 1000.0;
}

}  // namespace qkscope::cuda
