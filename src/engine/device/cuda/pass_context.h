// Rows of a forward pass (active rows of the batch, their positions, sequences and ranges of keys),
// and the parts of the CUDA backend that the steps of a pass share.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/device/backend.h"
#include "engine/device/cuda/memory/activations.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/pass_kernels.h"
#include "engine/device/cuda/products/products.h"
#include "engine/ops/attention.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// Device arrays (active rows). An entry is the row index of a key in the batch or in the KV cache.
struct VisibleKeys {
  const std::int32_t* first = nullptr;  // first visible key
  const std::int32_t* last = nullptr;   // last visible key
  const std::int32_t* begin = nullptr;  // first key of the row's sequence
};

class ActiveRows {
 public:
  ActiveRows(const ModelConfig& model, DType dtype, cudaStream_t stream)
      : model_(model), dtype_(dtype), stream_(stream) {}

  void begin_pass(const Batch& batch) {
    batch_ = &batch;
    kept_.clear();
    key_rows_.clear();
    ids_.upload(batch.ids, "row numbers", stream_);
    update_positions();
  }
  // Declares that keys are in a KV cache instead of the batch; the keys of sequence s start at
  // cache row first_rows[s].
  void set_first_key_rows(std::vector<std::int64_t> first_rows) {
    key_rows_ = std::move(first_rows);
    for (auto& [mask, range] : ranges_) range.count = 0;
  }
  // Restricts the rest of the pass to these rows of the batch.
  void keep_rows(std::span<const std::int64_t> rows) {
    kept_.assign(rows.begin(), rows.end());
    const std::vector<std::int32_t> kept_rows(rows.begin(), rows.end());
    device_kept_.upload(kept_rows, "row numbers", stream_);
    update_positions();
  }

  std::int64_t count() const { return has_dropped_rows() ? std::ssize(kept_) : batch_->rows(); }
  bool has_dropped_rows() const { return !kept_.empty(); }
  const std::int32_t* token_ids() const { return ids_.as<std::int32_t>(); }  // (batch rows)
  // Indices of the active rows in the batch, shape (count); null: all rows.
  const std::int32_t* kept_rows() const {
    return has_dropped_rows() ? device_kept_.as<std::int32_t>() : nullptr;
  }
  const std::int32_t* positions() const { return device_positions_.as<std::int32_t>(); }  // (count)
  std::int32_t index_among_kept(std::int64_t row) const {
    return static_cast<std::int32_t>(index_among_kept_rows(kept_, row));
  }
  const float* query_scale() const {  // (count) or null
    return model_.query_scaling ? query_scale_.as<float>() : nullptr;
  }
  RotaryTableView rotary_table(int rope) const {
    if (rope < 0) return {};
    const auto& table = tables_[as_index(rope)];
    const auto& config = model_.ropes[as_index(rope)];
    return {table.cos.data(), table.sin.data(), config.dim, config.begin};
  }
  // Returns, for each active row, the range of rows of k that the row attends to.
  VisibleKeys visible_keys(std::int64_t window, std::int64_t chunk) {
    auto& range = ranges_[{window, chunk}];
    const auto rows = count();
    if (range.count != rows) {
      std::vector<std::int64_t> running(as_index(rows));
      for (std::int64_t i = 0; i < rows; ++i) running[as_index(i)] = batch_row(i);
      range.numbers.upload(key_ranges(running, window, chunk), "row numbers", stream_);
      range.count = rows;
    }
    const auto* numbers = range.numbers.as<std::int32_t>();
    return {numbers + rows, numbers + 2 * rows, numbers + 3 * rows};
  }
  // Returns four lists for rows of the batch: indices among the active rows, first visible keys,
  // last visible keys, and first keys of the sequences.
  std::vector<std::int32_t> key_ranges(std::span<const std::int64_t> rows, std::int64_t window,
                                       std::int64_t chunk) const {
    const auto count = rows.size();
    std::vector<std::int32_t> numbers(4 * count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto number = index_among_kept(rows[i]);
      const auto at = as_index(number);
      const auto begin = first_key_row(sequences_[at]);
      numbers[i] = number;
      numbers[count + i] =
          static_cast<std::int32_t>(begin + first_visible_key(positions_[at], window, chunk));
      numbers[2 * count + i] = static_cast<std::int32_t>(begin + positions_[at]);
      numbers[3 * count + i] = static_cast<std::int32_t>(begin);
    }
    return numbers;
  }

 private:
  struct DeviceRotaryTable {
    DeviceMemory cos;
    DeviceMemory sin;
  };
  struct UploadedKeyRanges {
    UploadBuffer numbers;  // layout: see key_ranges()
    std::int64_t count = 0;
  };

  std::int64_t batch_row(std::int64_t active_row) const {
    return has_dropped_rows() ? kept_[as_index(active_row)] : active_row;
  }

  std::int64_t first_key_row(std::int32_t sequence) const {
    const auto number = as_index(sequence);
    return key_rows_.empty() ? batch_->sequences[number].begin : key_rows_[number];
  }

  void update_positions() {
    const auto rows = as_index(count());
    positions_.resize(rows);
    sequences_.resize(rows);
    std::size_t sequence = 0;
    for (std::size_t i = 0; i < rows; ++i) {
      const auto row = batch_row(static_cast<std::int64_t>(i));
      while (row >= batch_->sequences[sequence].begin + batch_->sequences[sequence].length)
        ++sequence;
      const auto& its = batch_->sequences[sequence];
      positions_[i] = static_cast<std::int32_t>(its.past + row - its.begin);
      sequences_[i] = static_cast<std::int32_t>(sequence);
    }
    device_positions_.upload(positions_, "row numbers", stream_);
    device_sequences_.upload(sequences_, "row numbers", stream_);
    for (auto& [mask, range] : ranges_) range.count = 0;
    fill_rotary_tables();
    if (model_.query_scaling) upload_query_scale();
  }

  void fill_rotary_tables() {
    tables_.resize(model_.ropes.size());
    const auto element = element_bytes(dtype_);
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      const auto& rope = model_.ropes[i];
      const auto half = rope.dim / 2;
      std::vector<float> frequencies, factors;
      for (const auto& sequence : batch_->sequences) {
        auto of_sequence = rope_frequencies(rope, sequence.end());
        if (rope.reversed)
          for (float& inverse : of_sequence.inverse) inverse = -inverse;
        frequencies.insert(frequencies.end(), of_sequence.inverse.begin(),
                           of_sequence.inverse.end());
        factors.push_back(of_sequence.attention_factor);
      }
      const auto inverse_count = frequencies.size();
      frequencies.insert(frequencies.end(), factors.begin(), factors.end());
      frequencies_.upload(frequencies, "row numbers", stream_);
      const auto bytes = count() * half * element;
      fill_rotary_table({.positions = device_positions_.as<std::int32_t>(),
                         .sequences = device_sequences_.as<std::int32_t>(),
                         .inverse = frequencies_.as<float>(),
                         .factors = frequencies_.as<float>() + inverse_count,
                         .cos = tables_[i].cos.reserve(bytes, "rotary tables"),
                         .sin = tables_[i].sin.reserve(bytes, "rotary tables"),
                         .rows = count(),
                         .half = half,
                         .dtype = dtype_},
                        stream_);
    }
  }

  void upload_query_scale() {
    const auto& scaling = *model_.query_scaling;
    std::vector<float> factors(positions_.size());
    for (std::size_t i = 0; i < factors.size(); ++i) {
      const auto turns = static_cast<float>((positions_[i] + scaling.shift) / scaling.original_max);
      factors[i] = 1.0f + static_cast<float>(scaling.beta) * std::log(1.0f + turns);
    }
    query_scale_.upload(factors, "row numbers", stream_);
  }

  const ModelConfig& model_;
  DType dtype_;
  cudaStream_t stream_;
  const Batch* batch_ = nullptr;
  std::vector<std::int64_t> kept_;       // empty: all
  std::vector<std::int64_t> key_rows_;   // (sequences); empty: keys start where the sequences start
  std::vector<std::int32_t> positions_;  // (count)
  std::vector<std::int32_t> sequences_;  // (count)
  UploadBuffer ids_;
  UploadBuffer device_kept_;
  UploadBuffer device_positions_;
  UploadBuffer device_sequences_;
  UploadBuffer frequencies_;
  UploadBuffer query_scale_;
  std::vector<DeviceRotaryTable> tables_;  // one per rope of the model
  // By window and chunk.
  std::map<std::pair<std::int64_t, std::int64_t>, UploadedKeyRanges> ranges_;
};

struct PassContext {
  const ModelConfig& model;
  DType dtype;  // of weights and activations
  cudaStream_t stream;
  MatrixMultiplier& products;
  ActiveRows& rows;
  Activations& activations;
  ActivationCopier& copies;

  void apply_linear(const void* x, const DeviceLinear& linear, void* y,
                    std::int64_t y_stride = 0) const {
    products.multiply(
        {.x = x, .linear = linear, .y = y, .rows = rows.count(), .y_stride = y_stride});
  }
  // Normalises a.rows rows or, if that is 0, all active rows.
  void normalize_rows(NormArguments a, double eps) const {
    if (a.rows == 0) a.rows = rows.count();
    a.eps = static_cast<float>(eps);
    a.dtype = dtype;
    cuda::normalize_rows(a, stream);
  }
  void embed(EmbeddingArguments a) const {
    a.dtype = dtype;
    cuda::embed(a, stream);
  }
  void apply_gate(MlpGateArguments a) const {
    a.dtype = dtype;
    cuda::apply_gate(a, stream);
  }
  void copy_rows(CopyRowsArguments a) const {
    a.dtype = dtype;
    cuda::copy_rows(a, stream);
  }
  void* reserve_elements(DeviceMemory& memory, std::int64_t elements, const char* what) const {
    return memory.reserve(elements * element_bytes(dtype), what);
  }
};

}  // namespace qkscope::cuda
