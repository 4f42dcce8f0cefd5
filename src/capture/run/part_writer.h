// Appends examples to a part: rows go into the open segment as they come, and segments are closed
// often enough that little is lost when the process dies. Closing waits for the disk, so it goes on
// beside the next batches.
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
  // The journal belongs to the writer until flush() returns or the writer is gone. `stored` is
  // called, on another thread, after a segment is in the journal.
  PartWriter(const RunPlan& plan, Journal& journal,
             std::function<void(const JournalEntry&)> stored = {});

  // Runs the examples together and keeps their sampled rows; with statistics that look on.
  void capture(const PreparedBatch& prepared, Backend& backend,
               LayerStatistics* statistics = nullptr);
  // The same of a batch that ran elsewhere: these are its rows.
  void append(const PreparedBatch& prepared, const HeldRows& rows, const CapturedCount& count);
  // Closes the segment: everything captured so far is safe.
  void flush();

  std::int64_t examples() const { return done_.examples; }  // earlier runs counted in
  std::int64_t rows() const { return done_.rows; }
  std::int64_t tokens() const { return done_.tokens; }
  double forward_seconds() const { return forward_seconds_; }

 private:
  void open_segment();
  // Rows come into the open segment by what `fill` does with the sink.
  void add(const PreparedBatch& prepared, const std::function<CapturedCount(RowSink&)>& fill);
  bool due() const;
  void begin_closing();
  void finish_closing();

  const RunPlan& plan_;
  Journal& journal_;
  std::function<void(const JournalEntry&)> stored_;
  std::size_t segments_;  // begun
  std::unique_ptr<SegmentWriter> segment_;
  JournalEntry open_;  // what the segment holds
  JournalEntry done_;  // in all
  Clock::time_point opened_;
  double forward_seconds_ = 0.0;
  std::future<void> closing_;  // of the segment before
};

}  // namespace qkscope
