// Finds out whether a GPU can be used, and opens the part of the library that uses it
// (cuda_module.h). Nothing happens before a GPU is asked for, and nothing here fails: each answer
// carries the reason, one line, why a GPU is not used.
#pragma once

#include <string>
#include <vector>

#include "engine/device/cuda_module.h"

namespace qkscope {

// What the NVIDIA driver answers, before anything of CUDA is loaded.
struct CudaDriver {
  struct Gpu {
    int major = 0, minor = 0;  // compute capability
  };
  bool found = false;
  int version = 0;        // of CUDA that it serves: 13000
  std::vector<Gpu> gpus;  // none where why_not says something
  std::string why_not;
};
CudaDriver ask_driver(const std::string& library);

// The module: the first of `files` that exists.
struct CudaPart {
  const CudaModule* module = nullptr;  // stays open until the process ends
  std::string why_not;                 // where there is none
};
CudaPart open_cuda_module(const std::vector<std::string>& files, const CudaDriver& driver);

// Where the module is looked for: beside the library, as it is built and as it is installed, or
// where QKSCOPE_CUDA_MODULE says.
std::vector<std::string> cuda_module_files();

// The same for this machine, found out once.
const CudaDriver& cuda_driver();
const CudaPart& cuda_part();

// Why this GPU is not used; "" where it can be.
std::string why_not_gpu(int gpu);

}  // namespace qkscope
