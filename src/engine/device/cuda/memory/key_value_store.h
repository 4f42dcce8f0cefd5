// KV cache on the GPU.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/core/error.h"
#include "engine/device/backend.h"
#include "engine/device/cuda/memory/activation_copies.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/memory_plan.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

class CudaKeyValueStore : public KeyValueStore {
 public:
  // The allocation is charged to `budget`, which must outlive the cache.
  CudaKeyValueStore(const ModelConfig& model, DType dtype, DeviceBudget& budget,
                    std::int64_t sequences, std::int64_t positions)
      : model_(model),
        dtype_(dtype),
        budget_(budget),
        width_(model.n_kv_heads * model.d_head),
        positions_(positions),
        layers_(model.layers.size()) {
    if (sequences * positions > INT32_MAX)
      bad_input("a cache of {} texts of {} tokens on CUDA: expected at most {} tokens together",
                sequences, positions, INT32_MAX);
    bytes_ = budget_.reserve_cache(sequences, positions);
    const auto bytes = sequences * positions * row_stride() * element_bytes();
    try {
      for (std::size_t i = 0; i < layers_.size(); ++i)
        if (!model.layers[i].cross_attention) layers_[i].reserve(bytes, "cached keys and values");
    } catch (...) {
      budget_.release_cache(bytes_);
      throw;
    }
  }
  ~CudaKeyValueStore() override { budget_.release_cache(bytes_); }
  CudaKeyValueStore(const CudaKeyValueStore&) = delete;
  CudaKeyValueStore& operator=(const CudaKeyValueStore&) = delete;

  // Keys or values of a layer, shape (sequences * positions, n_kv_heads, d_head), rows row_stride
  // elements apart.
  void* k(std::int64_t layer) const { return layers_[static_cast<std::size_t>(layer)].data(); }
  void* v(std::int64_t layer) const {
    return static_cast<std::byte*>(k(layer)) + width_ * element_bytes();
  }
  std::int64_t row_stride() const { return 2 * width_; }

  // First row of each sequence in the cache.
  std::vector<std::int64_t> first_rows(std::span<const Sequence> sequences) const {
    std::vector<std::int64_t> rows;
    for (const auto& sequence : sequences) rows.push_back(sequence.slot * positions_);
    return rows;
  }
  // Rows of the cache that receive the keys and values of the batch.
  std::vector<std::int32_t> new_rows(std::span<const Sequence> sequences) const {
    std::vector<std::int32_t> rows;
    for (const auto& sequence : sequences)
      for (auto position = sequence.past; position < sequence.end(); ++position)
        rows.push_back(static_cast<std::int32_t>(sequence.slot * positions_ + position));
    return rows;
  }

  // View of all cached positions of a sequence. `data` is k() or v() of a layer.
  DeviceView rows_of(void* data, const Sequence& sequence) const {
    auto* first =
        static_cast<std::byte*>(data) + sequence.slot * positions_ * row_stride() * element_bytes();
    return {first, row_stride(), sequence.end(), model_.n_kv_heads, model_.d_head, true, dtype_};
  }

 private:
  std::int64_t element_bytes() const { return static_cast<std::int64_t>(dtype_size(dtype_)); }

  const ModelConfig& model_;
  DType dtype_;
  DeviceBudget& budget_;
  std::int64_t width_;  // n_kv_heads * d_head
  std::int64_t positions_;
  std::int64_t bytes_ = 0;            // total over all layers
  std::vector<DeviceMemory> layers_;  // a row holds keys, then values
};

}  // namespace qkscope::cuda
