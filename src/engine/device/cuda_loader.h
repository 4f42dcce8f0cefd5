// Detects GPUs and loads the CUDA module (cuda_module.h) on first use. No function here throws: a
// missing GPU is reported as a reason in one line.
#pragma once

#include <string>
#include <vector>

#include "engine/device/cuda_module.h"

namespace qkscope {

// Answers of the NVIDIA driver, before any CUDA library is loaded.
struct CudaDriver {
  struct Gpu {
    int major = 0, minor = 0;  // compute capability
  };
  bool found = false;
  int version = 0;        // highest supported CUDA version, e.g. 13000
  std::vector<Gpu> gpus;  // empty if why_not is set
  std::string why_not;
};
// Opens the driver library and queries its GPUs.
CudaDriver query_driver(const std::string& library);

// The loaded module, or the reason why there is none.
struct LoadedCudaModule {
  const CudaModule* module = nullptr;  // never unloaded
  std::string why_not;                 // set if module is null
};
// Loads the first of `files` that exists.
LoadedCudaModule open_cuda_module(const std::vector<std::string>& files, const CudaDriver& driver);

// Returns candidate paths of the module: QKSCOPE_CUDA_MODULE, or paths beside the library.
std::vector<std::string> cuda_module_files();

// Driver and module of this machine, determined once.
const CudaDriver& cuda_driver();
const LoadedCudaModule& cuda_module();

// Returns why the GPU cannot be used; "" if it can.
std::string gpu_unavailable_reason(int gpu);

}  // namespace qkscope
