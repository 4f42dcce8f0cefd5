// Takes the sampled rows of the chosen heads out of a forward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "capture/run/batch_reader.h"
#include "capture/run/capture_plan.h"
#include "engine/device/backend.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Positions [begin, end) of a group's sample, all of one example.
struct SampledRows {
  std::size_t example = 0;  // of the batch
  std::size_t group = 0;    // of the manifest
  std::size_t begin = 0;
  std::size_t end = 0;
};

class RowSink {
 public:
  virtual ~RowSink() = default;
  // vectors: (positions, chosen heads, head_dim), float32
  virtual void add(const SampledRows& rows, ConstTensorView vectors) = 0;
};

// Rows that wait in memory for their turn, in the order in which they came.
class HeldRows : public RowSink {
 public:
  void add(const SampledRows& rows, ConstTensorView vectors) override;
  void hand_to(RowSink& sink) const;

 private:
  struct Block {
    SampledRows rows;
    Tensor vectors;  // (positions, chosen heads, head_dim)
  };
  std::vector<Block> blocks_;
};

// Over all heads.
struct CapturedCount {
  std::int64_t rows = 0;
  std::int64_t non_finite = 0;  // of those, with NaN or infinity, where they are kept
  double forward_seconds = 0.0;
};

// Runs the examples together and hands their sampled rows to the sink. A vector with NaN or
// infinity is bad input where such rows are not kept.
CapturedCount capture_batch(const RunPlan& plan, Backend& backend, const PreparedBatch& prepared,
                            RowSink& sink, LayerStatistics* statistics = nullptr);

}  // namespace qkscope
