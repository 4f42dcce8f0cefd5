#include "engine/device/cuda/memory/key_value_store.h"

#include "base/core/error.h"

namespace qkscope::cuda {

CudaStore::CudaStore(const ModelConfig& model, DType dtype, DeviceBudget& budget,
                     std::int64_t sequences, std::int64_t positions)
    : model_(model),
      dtype_(dtype),
      budget_(budget),
      width_(model.n_kv_heads * model.d_head),
      positions_(positions) {
  if (sequences * positions > INT32_MAX)
    bad_input("a cache of {} texts of {} tokens on CUDA: expected at most {} tokens together",
              sequences, positions, INT32_MAX);
  bytes_ = budget_.take_cache(sequences, positions);
  layers_.resize(model.layers.size());
  const auto bytes =
      sequences * positions * row_stride() * static_cast<std::int64_t>(dtype_size(dtype_));
  try {
    for (std::size_t i = 0; i < layers_.size(); ++i)
      if (!model.layers[i].cross_attention) layers_[i].reserve(bytes, "cached keys and values");
  } catch (...) {
    budget_.give_back(bytes_);
    throw;
  }
}

CudaStore::~CudaStore() {
  budget_.give_back(bytes_);
}

void* CudaStore::k(std::int64_t layer) const {
  return layers_[static_cast<std::size_t>(layer)].data();
}

void* CudaStore::v(std::int64_t layer) const {
  return static_cast<std::byte*>(k(layer)) + width_ * static_cast<std::int64_t>(dtype_size(dtype_));
}

std::vector<std::int64_t> CudaStore::first_rows(std::span<const Sequence> sequences) const {
  std::vector<std::int64_t> rows;
  for (const auto& sequence : sequences) rows.push_back(sequence.slot * positions_);
  return rows;
}

std::vector<std::int32_t> CudaStore::new_rows(std::span<const Sequence> sequences) const {
  std::vector<std::int32_t> rows;
  for (const auto& sequence : sequences)
    for (auto position = sequence.past; position < sequence.end(); ++position)
      rows.push_back(static_cast<std::int32_t>(sequence.slot * positions_ + position));
  return rows;
}

DeviceView CudaStore::all_keys(std::int64_t layer, const Sequence& sequence) const {
  return rows_of(k(layer), sequence);
}

DeviceView CudaStore::all_values(std::int64_t layer, const Sequence& sequence) const {
  return rows_of(v(layer), sequence);
}

DeviceView CudaStore::rows_of(void* data, const Sequence& sequence) const {
  const auto element = static_cast<std::int64_t>(dtype_size(dtype_));
  auto* first = static_cast<std::byte*>(data) + sequence.slot * positions_ * row_stride() * element;
  return {first, row_stride(), sequence.end(), model_.n_kv_heads, model_.d_head, true, dtype_};
}

}  // namespace qkscope::cuda
