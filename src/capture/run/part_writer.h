// Appends examples to a part. Rows go to the open segment; segments are closed often, so that a
// crash loses little work. Closing waits for the disk and therefore runs on another thread.
#pragma once

#include <functional>
#include <future>
#include <memory>

#include "base/core/clock.h"
#include "capture/format/journal.h"
#include "capture/format/segment.h"
#include "capture/run/batch_reader.h"
#include "capture/run/capture_observer.h"
#include "capture/run/capture_plan.h"
#include "engine/device/backend.h"
#include "engine/forward/forward.h"

namespace qkscope {

class PartWriter {
 public:
  // The journal must not be used elsewhere until flush() returns or the writer is destroyed.
  // `stored` is called on another thread after a segment is recorded in the journal.
  PartWriter(const RunPlan& plan, Journal& journal,
             std::function<void(const JournalEntry&)> stored = {});

  // Runs a batch and stores its sampled rows. `statistics` observes the same forward pass.
  void capture(const PreparedBatch& prepared, Backend& backend,
               LayerStatistics* statistics = nullptr);
  // Stores the rows of a batch that ran on another worker.
  void append(const PreparedBatch& prepared, const HeldRows& rows, const CapturedCount& count);
  // Closes the open segment and waits until everything so far is on disk.
  void flush();

  std::int64_t examples() const { return done_.examples; }  // including resumed ones
  std::int64_t rows() const { return done_.rows; }
  std::int64_t tokens() const { return done_.tokens; }
  double forward_seconds() const { return forward_seconds_; }

 private:
  void open_segment();
  // Adds a batch whose rows `fill` writes to the sink.
  void add(const PreparedBatch& prepared, const std::function<CapturedCount(RowSink&)>& fill);
  bool due() const;
  void begin_closing();
  void finish_closing();

  const RunPlan& plan_;
  Journal& journal_;
  std::function<void(const JournalEntry&)> stored_;
  std::size_t segments_;  // opened so far
  std::unique_ptr<SegmentWriter> segment_;
  JournalEntry open_;  // counts of the open segment
  JournalEntry done_;  // counts of the part
  Clock::time_point opened_;
  double forward_seconds_ = 0.0;
  std::future<void> closing_;  // of the previous segment
};

}  // namespace qkscope
