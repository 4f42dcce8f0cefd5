// Receives the sampled rows of the selected heads from forward passes and appends them to a part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "base/core/clock.h"
#include "capture/format/journal.h"
#include "capture/format/segment.h"
#include "capture/writer/selection.h"
#include "engine/device/backend.h"
#include "qkscope/experimental/engine.h"
#include "qkscope/forward.h"
#include "qkscope/tensor.h"

namespace qkscope {

// The fields of a run plan that are needed to write sampled rows.
struct PartWriterPlan {
  Manifest manifest;
  std::vector<HookPoint> points;  // one hook point per head group
  BackendOptions backend;         // device and type of the activations
  bool keep_non_finite = false;   // false: a vector with NaN or infinity ends the run
};

// Index range [begin, end) of the positions of one example in SampledPositions::positions.
struct SampledRowRange {
  std::size_t example = 0;  // index in the batch
  std::size_t group = 0;    // index in the manifest
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Sampled rows of one batch, kept in memory until all earlier batches are written.
struct CapturedBatch {
  // Totals of a batch over all heads.
  struct BatchTotals {
    std::int64_t rows = 0;
    std::int64_t non_finite = 0;  // rows with NaN or infinity, if the configuration keeps them
    double forward_seconds = 0.0;
  };
  struct RowBlock {
    SampledRowRange rows;
    Tensor vectors;  // (positions, selected heads, head_dim)
  };
  std::vector<RowBlock> blocks;
  BatchTotals count;
};

// Copies a float32 tensor (rows, heads, width) with any row and head strides to contiguous memory.
Tensor contiguous_copy(ConstTensorView from);

// Runs a batch and returns its sampled rows. Throws a bad-input error for a vector with NaN or
// infinity unless the configuration keeps such rows.
CapturedBatch capture_to_memory(const PartWriterPlan& plan, const ExampleBatch& prepared,
                                const RunPass& run);

// Writes rows to the open segment of a part. Segments are closed often, so that a crash loses
// little work. Closing waits for the disk and therefore runs on another thread.
class CapturePartWriter {
 public:
  // The caller must not use the journal until flush() returns or the writer is destroyed. `stored`
  // is called on another thread after a segment is recorded in the journal.
  CapturePartWriter(const PartWriterPlan& plan, Journal& journal,
                    std::function<void(const JournalEntry&)> stored = {});

  // Runs a batch and stores its sampled rows, without buffering them in memory.
  void capture_and_store(const ExampleBatch& prepared, const RunPass& run);
  // Stores the rows of a batch that another worker ran.
  void append_batch(const ExampleBatch& prepared, const CapturedBatch& captured);
  // Closes the open segment and waits until all rows are on disk.
  void flush();

  std::int64_t example_count() const { return done_.examples; }  // with those of earlier processes
  std::int64_t row_count() const { return done_.rows; }
  std::int64_t token_count() const { return done_.tokens; }
  double forward_seconds() const { return forward_seconds_; }

 private:
  void begin_batch(const ExampleBatch& prepared);
  void add_rows(const ExampleBatch& prepared, const SampledRowRange& rows, ConstTensorView vectors);
  void finish_batch(const ExampleBatch& prepared, const CapturedBatch::BatchTotals& count);
  void commit_segment_in_background();
  void wait_for_segment_commit();

  const PartWriterPlan& plan_;
  Journal& journal_;
  std::function<void(const JournalEntry&)> stored_;
  std::size_t segments_;  // segments opened so far
  std::unique_ptr<SegmentWriter> segment_;
  JournalEntry open_;      // totals of the open segment
  JournalEntry done_;      // totals of the part
  std::size_t first_ = 0;  // number of the batch's first example in the open segment
  Clock::time_point opened_;
  double forward_seconds_ = 0.0;
  std::future<void> closing_;  // commit of the previous segment
};

}  // namespace qkscope
