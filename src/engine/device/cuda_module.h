// Interface between libqkscope and its CUDA part, the shared object libqkscope_cuda.so
// (device/cuda), which cuda_loader.cpp opens if there is a GPU. The two exchange two tables of
// function pointers and share no symbol: libqkscope needs no CUDA library, the module also works in
// programs that link the library statically, and a process has one log and one thread pool.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/core/thread_pool.h"
#include "engine/device/backend.h"
#include "engine/device/memory_plan.h"
#include "engine/ops/attention.h"
#include "engine/ops/linear.h"
#include "qkscope/experimental/log.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Functions of libqkscope that the CUDA module calls: functions with state, and operations whose
// results must be bit-identical to the CPU backend. device/cuda/module.cpp wraps them.
struct CudaModuleImports {
  bool (*log_wanted)(LogLevel level);
  void (*log_write)(LogLevel level, const std::string& message);
  decltype(&qkscope::parallel_for_ranges) parallel_for_ranges;
  decltype(&GpuMemoryBudget::check_rows_fit) check_rows_fit;
  decltype(&GpuMemoryBudget::reserve_cache) reserve_cache;
  decltype(&qkscope::rope_frequencies) rope_frequencies;
  decltype(&qkscope::compute_row_scores) compute_row_scores;
  decltype(&qkscope::recompute_attention_pattern) recompute_attention_pattern;
  decltype(&qkscope::recompute_edited_rows) recompute_edited_rows;
  decltype(&qkscope::compute_attention_statistics) compute_attention_statistics;
  decltype(&qkscope::group_rows_by_expert) group_rows_by_expert;
  decltype(&qkscope::weights_to_float32) weights_to_float32;
};

// Functions of the CUDA module that libqkscope calls.
struct CudaModule {
  int cuda_version;  // version of the CUDA toolkit of the build, e.g. 13000
  std::string (*gpu_incompatibility_reason)(int gpu);  // "" if the module has code for the GPU
  std::int64_t (*free_memory_bytes)(int gpu);          // bytes
  void (*copy_values)(TensorView to, ConstTensorView from);
  std::unique_ptr<Backend> (*make_backend)(const LoadedCheckpoint& model,
                                           const BackendOptions& options,
                                           const GpuMemoryBudget& budget);
};

// The two exported symbols of the CUDA module. The stamp (module_stamp.h) names the version and a
// hash of the shared headers; it must match before the entry point is called.
inline constexpr const char* kCudaModuleStamp = "qkscope_cuda_stamp";  // const char[]
inline constexpr const char* kCudaModuleEntry = "qkscope_cuda_module";
using CudaModuleEntry = const CudaModule*(const CudaModuleImports* imports);

// Loader of the CUDA module. Its functions do not throw; they return a one-line failure reason.

// Information from the NVIDIA driver, queried before any CUDA library is loaded.
struct CudaDriver {
  struct Gpu {
    int major = 0, minor = 0;  // compute capability
  };
  bool found = false;
  int version = 0;        // highest supported CUDA version, e.g. 13000
  std::vector<Gpu> gpus;  // empty if why_not is set
  std::string why_not;
};
CudaDriver probe_driver(const std::string& library);

// The loaded CUDA module, or the reason why it could not be loaded.
struct LoadedCudaModule {
  const CudaModule* module = nullptr;  // never unloaded
  std::string why_not;                 // set if module is null
};
// Loads the first of `files` that exists.
LoadedCudaModule open_cuda_module(const std::vector<std::string>& files, const CudaDriver& driver);

// Returns candidate paths of the CUDA module: QKSCOPE_CUDA_MODULE, or paths next to the library.
std::vector<std::string> cuda_module_files();

// Return the NVIDIA driver and the loaded CUDA module; both are determined on the first call.
const CudaDriver& cuda_driver();
const LoadedCudaModule& cuda_module();

// Returns why the GPU cannot be used; "" if it can.
std::string gpu_unavailable_reason(int gpu);

}  // namespace qkscope
