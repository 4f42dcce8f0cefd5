// Rows of a forward pass: which rows of the batch are still active, their positions and sequences,
// and the key ranges that follow.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/device/cuda/heads.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"

namespace qkscope::cuda {

// Device arrays with one entry per running row.
struct KeyRange {
  const std::int32_t* first = nullptr;
  const std::int32_t* last = nullptr;
  const std::int32_t* begin = nullptr;  // first key of the row's sequence
};

class PassRows {
 public:
  PassRows(const ModelConfig& model, DType dtype, cudaStream_t stream)
      : model_(model), dtype_(dtype), stream_(stream) {}

  void begin(const Batch& batch);
  // Declares that keys are not in the rows of the batch: the keys of sequence s start at row
  // first_rows[s].
  void place_keys(std::vector<std::int64_t> first_rows);
  // Restricts the pass to these rows of the batch from now on.
  void keep(std::span<const std::int64_t> rows);

  std::int64_t count() const;
  bool narrowed() const { return !kept_.empty(); }
  const std::int32_t* ids() const { return ids_.as<std::int32_t>(); }           // of the batch
  const std::int32_t* kept() const { return device_kept_.as<std::int32_t>(); }  // rows of the batch
  const std::int32_t* positions() const { return device_positions_.as<std::int32_t>(); }  // (count)
  std::int32_t number_of(std::int64_t row) const;  // index of the row among the running rows
  const float* query_scale() const;                // (count) or null
  RotaryView rotary(int rope) const;
  // Returns which rows of k each running row attends to.
  KeyRange keys(std::int64_t window);
  // For the given rows of the batch, returns four concatenated lists: row numbers, first keys, last
  // keys, and sequence starts.
  std::vector<std::int32_t> places(std::span<const std::int64_t> rows, std::int64_t window) const;

 private:
  struct Table {
    DeviceBlock cos;
    DeviceBlock sin;
  };
  struct Range {
    UploadBuffer numbers;  // layout: see places()
    std::int64_t count = 0;
  };

  std::int64_t row_of(std::int64_t number) const;
  std::int64_t first_key(std::int32_t sequence) const;
  void place_rows();
  void fill_tables();
  void scale_queries();

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
  std::vector<Table> tables_;             // one per rope of the model
  std::map<std::int64_t, Range> ranges_;  // by window
};

}  // namespace qkscope::cuda
