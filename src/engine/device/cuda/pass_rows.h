// The rows of a pass: which of the batch still run, where each stands, and what follows from it.
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

// Device arrays, one number per running row.
struct KeyRange {
  const std::int32_t* first = nullptr;
  const std::int32_t* last = nullptr;
  const std::int32_t* begin = nullptr;  // of the sequence
};

class PassRows {
 public:
  PassRows(const ModelConfig& model, DType dtype, cudaStream_t stream)
      : model_(model), dtype_(dtype), stream_(stream) {}

  void begin(const Batch& batch);
  // Keys lie elsewhere than in the rows of the batch: those of each sequence from these rows on.
  void place_keys(std::vector<std::int64_t> first_rows);
  // From here on these rows of the batch only.
  void keep(std::span<const std::int64_t> rows);

  std::int64_t count() const;
  bool narrowed() const { return !kept_.empty(); }
  const std::int32_t* ids() const { return ids_.as<std::int32_t>(); }           // of the batch
  const std::int32_t* kept() const { return device_kept_.as<std::int32_t>(); }  // rows of the batch
  const std::int32_t* positions() const { return device_positions_.as<std::int32_t>(); }  // (count)
  std::int32_t number_of(std::int64_t row) const;  // among the running ones
  const float* query_scale() const;                // (count) or null
  RotaryView rotary(int rope) const;
  // Which rows of k each running row sees.
  KeyRange keys(std::int64_t window);
  // For some rows of the batch: their numbers, first and last keys and sequences' begins, one list
  // after the other.
  std::vector<std::int32_t> places(std::span<const std::int64_t> rows, std::int64_t window) const;

 private:
  struct Table {
    DeviceBlock cos;
    DeviceBlock sin;
  };
  struct Range {
    DeviceBlock numbers;  // see places()
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
  std::vector<std::int64_t> key_rows_;   // (sequences); empty: where the sequences begin
  std::vector<std::int32_t> positions_;  // (count)
  std::vector<std::int32_t> sequences_;  // (count)
  DeviceBlock ids_;
  DeviceBlock device_kept_;
  DeviceBlock device_positions_;
  DeviceBlock device_sequences_;
  DeviceBlock frequencies_;
  DeviceBlock query_scale_;
  std::vector<Table> tables_;             // one per rope of the model
  std::map<std::int64_t, Range> ranges_;  // by window
};

}  // namespace qkscope::cuda
