// Extracts the sampled rows of the selected heads from a forward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/run/batch_reader.h"
#include "capture/run/capture_plan.h"
#include "engine/device/backend.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Positions [begin, end) of a GroupSample, all from one example.
struct SampledRows {
  std::size_t example = 0;  // index in the batch
  std::size_t group = 0;    // index in the manifest
  std::size_t begin = 0;
  std::size_t end = 0;
};

class RowSink {
 public:
  virtual ~RowSink() = default;
  // vectors: shape (positions, selected heads, head_dim), float32
  virtual void add(const SampledRows& rows, ConstTensorView vectors) = 0;
};

// Buffers rows in memory until their batch is next in order.
class HeldRows : public RowSink {
 public:
  void add(const SampledRows& rows, ConstTensorView vectors) override;
  void hand_to(RowSink& sink) const;

 private:
  struct Block {
    SampledRows rows;
    Tensor vectors;  // (positions, selected heads, head_dim)
  };
  std::vector<Block> blocks_;
};

// Totals of one batch over all heads.
struct CapturedCount {
  std::int64_t rows = 0;
  std::int64_t non_finite = 0;  // rows with NaN or infinity, if the configuration keeps them
  double forward_seconds = 0.0;
};

// Runs a batch and passes its sampled rows to the sink. Throws bad input for a vector with NaN or
// infinity unless the configuration keeps such rows.
CapturedCount capture_batch(const RunPlan& plan, Backend& backend, const PreparedBatch& prepared,
                            RowSink& sink, LayerStatistics* statistics = nullptr);

}  // namespace qkscope
