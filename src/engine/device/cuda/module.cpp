// Exported symbols of libqkscope_cuda.so: its version stamp and the entry point that exchanges
// function tables.
#include <cuda_runtime.h>

#include "engine/device/cuda/cuda_backend.h"
#include "engine/device/cuda/cuda_devices.h"
#include "engine/device/cuda/memory/host.h"
#include "engine/device/module_stamp.h"

using namespace qkscope;

extern "C" {

[[gnu::visibility("default")]] extern const char qkscope_cuda_stamp[];
const char qkscope_cuda_stamp[] = QKSCOPE_MODULE_STAMP;

[[gnu::visibility("default")]] const CudaModule* qkscope_cuda_module(const CudaHost* host) {
  static constexpr CudaModule kModule{
      .cuda_version = CUDART_VERSION,
      .why_unusable = cuda::why_unusable,
      .free_memory = cuda::free_memory,
      .copy_values = cuda::copy_values,
      .make_backend = cuda::make_backend,
  };
  cuda::set_host(host);
  return &kModule;
}
}
