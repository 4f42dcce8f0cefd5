// What libqkscope and its part for NVIDIA GPUs know of each other. That part is a shared object of
// its own, libqkscope_cuda.so (device/cuda), which cuda_loader.h opens where there is a GPU: the
// library itself needs nothing of CUDA. They meet in two tables of functions and share no symbol,
// so that the module works the same inside a program that holds the library, and a process has one
// log, one pool of threads and one set of operations.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/device/backend.h"
#include "engine/device/memory_plan.h"
#include "engine/ops/attention.h"
#include "engine/ops/attention_statistics.h"
#include "engine/ops/experts.h"
#include "engine/ops/weight_rows.h"
#include "qkscope/experimental/log.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// What the module uses of the library: whatever has state, and operations whose bits are the CPU's.
// device/cuda/host.cpp gives them their usual names there.
struct CudaHost {
  bool (*log_wanted)(LogLevel level);
  void (*log_write)(LogLevel level, const std::string& message);
  void (*parallel_ranges)(std::int64_t count, std::int64_t grain,
                          const std::function<void(std::int64_t, std::int64_t)>& body);
  void (*check_rows)(const DeviceBudget& budget, std::int64_t rows);
  std::int64_t (*take_cache)(DeviceBudget& budget, std::int64_t sequences, std::int64_t positions);
  RopeFrequencies (*rope_frequencies)(const RopeConfig& rope, std::int64_t length);
  void (*score_rows)(const AttentionInput& input, std::span<const std::int64_t> rows,
                     TensorView scores, TensorView pattern);
  void (*pattern_of_edited_scores)(const AttentionInput& input, std::span<const std::int64_t> rows,
                                   ConstTensorView scores, TensorView pattern);
  void (*attend_edited_rows)(const AttentionInput& input, std::span<const std::int64_t> rows,
                             ConstTensorView scores, ConstTensorView pattern, TensorView z);
  LayerAttention (*attention_statistics)(const AttendedRows& attended,
                                         const AttentionRequest& request);
  ExpertRows (*rows_by_expert)(ConstTensorView indices, std::int64_t experts);
  void (*widen_rows)(const WeightMatrix& matrix, const WeightPart& part, float* out);
};

struct CudaModule {
  int cuda_version;                      // that it was built with, as the driver counts: 13000
  std::string (*why_unusable)(int gpu);  // "": it has code for this GPU
  std::int64_t (*free_memory)(int gpu);  // bytes
  void (*copy_values)(TensorView to, ConstTensorView from);
  std::unique_ptr<Backend> (*make_backend)(const LoadedCheckpoint& model,
                                           const BackendOptions& options,
                                           const DeviceBudget& budget);
};

// The two symbols that the module shows. The stamp (module_stamp.h) names the version and a hash of
// the headers that both sides were compiled with: it must be the library's own before the entry is
// called.
inline constexpr const char* kCudaModuleStamp = "qkscope_cuda_stamp";  // const char[]
inline constexpr const char* kCudaModuleEntry = "qkscope_cuda_module";
using CudaModuleEntry = const CudaModule*(const CudaHost* host);

}  // namespace qkscope
