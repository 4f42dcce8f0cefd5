// KV cache on the GPU.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <cuda_runtime.h>

#include "engine/device/backend.h"
#include "engine/device/cuda/memory/activation_copies.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/memory_plan.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

class CudaStore : public KeyValueStore {
 public:
  // The allocation is charged to `budget`, which must outlive the cache.
  CudaStore(const ModelConfig& model, DType dtype, DeviceBudget& budget, std::int64_t sequences,
            std::int64_t positions);
  ~CudaStore() override;
  CudaStore(const CudaStore&) = delete;
  CudaStore& operator=(const CudaStore&) = delete;

  // Keys or values of a layer, shape (sequences * positions, n_kv_heads, d_head), rows row_stride
  // elements apart.
  void* k(std::int64_t layer) const;
  void* v(std::int64_t layer) const;
  std::int64_t row_stride() const { return 2 * width_; }

  // First row of each sequence in the cache.
  std::vector<std::int64_t> first_rows(std::span<const Sequence> sequences) const;
  // Rows of the cache that receive the keys and values of the batch.
  std::vector<std::int32_t> new_rows(std::span<const Sequence> sequences) const;

  // View of all cached positions of a sequence.
  DeviceView all_keys(std::int64_t layer, const Sequence& sequence) const;
  DeviceView all_values(std::int64_t layer, const Sequence& sequence) const;

 private:
  DeviceView rows_of(void* data, const Sequence& sequence) const;

  const ModelConfig& model_;
  DType dtype_;
  DeviceBudget& budget_;
  std::int64_t width_;  // n_kv_heads * d_head
  std::int64_t positions_;
  std::int64_t bytes_ = 0;           // total over all layers
  std::vector<DeviceBlock> layers_;  // a row holds keys, then values
};

}  // namespace qkscope::cuda
