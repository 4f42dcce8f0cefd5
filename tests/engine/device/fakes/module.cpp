// A fake CUDA module that exercises the interface of cuda_loader.cpp: exceptions, log and threads
// of the host.
#include <atomic>

#include "base/core/error.h"
#include "engine/device/cuda_module.h"
#include "engine/device/module_stamp.h"

#ifndef FAKE_STAMP
#define FAKE_STAMP QKSCOPE_MODULE_STAMP
#endif

namespace qkscope {
namespace {

const CudaModuleImports* imports = nullptr;

std::string fake_reason(int gpu) {
  imports->log_write(LogLevel::debug, fmt::format("asked for GPU {}", gpu));
  return "it is a fake";
}

// Returns the number of indices that the host threads processed.
std::int64_t fake_memory(int) {
  std::atomic<std::int64_t> sum = 0;
  imports->parallel_for_ranges(1000, 10,
                               [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
  return sum;
}

void fake_copy(TensorView, ConstTensorView) {
  throw_failure("a failure of the fake");
}

std::unique_ptr<Backend> fake_backend(const LoadedCheckpoint&, const BackendOptions&,
                                      const GpuMemoryBudget&) {
  reject("a refusal of the fake");
}

}  // namespace
}  // namespace qkscope

extern "C" {
[[gnu::visibility("default")]] extern const char qkscope_cuda_stamp[];
const char qkscope_cuda_stamp[] = FAKE_STAMP;

[[gnu::visibility("default")]] const qkscope::CudaModule* qkscope_cuda_module(
    const qkscope::CudaModuleImports* table) {
  static constexpr qkscope::CudaModule kModule{.cuda_version = 13000,
                                               .gpu_incompatibility_reason = qkscope::fake_reason,
                                               .free_memory_bytes = qkscope::fake_memory,
                                               .copy_values = qkscope::fake_copy,
                                               .make_backend = qkscope::fake_backend};
  qkscope::imports = table;
  return &kModule;
}
}
