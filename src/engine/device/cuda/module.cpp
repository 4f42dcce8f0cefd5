// Entry point of libqkscope_cuda.so, and definitions of the libqkscope functions that this module
// uses: each calls the library through its function table. Linking copies of these functions
// instead would duplicate the log and the thread pool.
#include <cuda_runtime.h>

#include "base/core/log.h"
#include "engine/device/cuda/cuda_devices.h"
#include "engine/device/cuda_module.h"
#include "engine/device/module_stamp.h"
#include "engine/ops/attention.h"

namespace qkscope {
namespace {

const CudaModuleImports* imports = nullptr;

}  // namespace

bool log::is_enabled(LogLevel level) {
  return imports->log_wanted(level);
}

void log::write(LogLevel level, const std::string& message) {
  imports->log_write(level, message);
}

void parallel_for_ranges(std::int64_t count, std::int64_t grain,
                         const std::function<void(std::int64_t, std::int64_t)>& body) {
  imports->parallel_for_ranges(count, grain, body);
}

void GpuMemoryBudget::check_rows_fit(std::int64_t rows) const {
  (this->*imports->check_rows_fit)(rows);
}

std::int64_t GpuMemoryBudget::reserve_cache(std::int64_t sequences, std::int64_t positions) {
  return (this->*imports->reserve_cache)(sequences, positions);
}

RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t length) {
  return imports->rope_frequencies(rope, length);
}

void compute_row_scores(const AttentionInput& input, std::span<const std::int64_t> rows,
                        TensorView scores, TensorView pattern) {
  imports->compute_row_scores(input, rows, scores, pattern);
}

void recompute_attention_pattern(const AttentionInput& input, std::span<const std::int64_t> rows,
                                 ConstTensorView scores, TensorView pattern) {
  imports->recompute_attention_pattern(input, rows, scores, pattern);
}

void recompute_edited_rows(const AttentionInput& input, std::span<const std::int64_t> rows,
                           ConstTensorView scores, ConstTensorView pattern, TensorView z) {
  imports->recompute_edited_rows(input, rows, scores, pattern, z);
}

LayerAttentionSums compute_attention_statistics(const AttentionStatisticsInput& attended,
                                                const AttentionRequest& request) {
  return imports->compute_attention_statistics(attended, request);
}

RowsByExpert group_rows_by_expert(ConstTensorView indices, std::int64_t experts) {
  return imports->group_rows_by_expert(indices, experts);
}

void weights_to_float32(const WeightMatrix& matrix, const WeightSubmatrix& part, float* out) {
  imports->weights_to_float32(matrix, part, out);
}

}  // namespace qkscope

using namespace qkscope;

extern "C" {

[[gnu::visibility("default")]] extern const char qkscope_cuda_stamp[];
const char qkscope_cuda_stamp[] = QKSCOPE_MODULE_STAMP;

[[gnu::visibility("default")]] const CudaModule* qkscope_cuda_module(
    const CudaModuleImports* table) {
  static constexpr CudaModule kModule{
      .cuda_version = CUDART_VERSION,
      .gpu_incompatibility_reason = cuda::gpu_incompatibility_reason,
      .free_memory_bytes = cuda::free_memory_bytes,
      .copy_values = cuda::copy_values,
      .make_backend = cuda::make_backend,
  };
  imports = table;
  return &kModule;
}
}
