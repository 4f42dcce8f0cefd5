// Appends examples to a part: rows go into the open segment as they come, and segments are closed
// often enough that little is lost when the process dies.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "capture/example_source.h"
#include "capture/journal.h"
#include "capture/plan.h"
#include "model/model.h"

namespace qkscope {

class PartWriter {
 public:
  PartWriter(const CapturePlan& plan, const Model& model, Journal& journal);

  // Runs the examples together and keeps their sampled rows.
  void capture(const std::vector<Example>& examples, const ExampleSource& source);
  // Closes the segment: everything captured so far is safe.
  void flush();

  std::int64_t examples() const { return done_.examples; }  // earlier runs counted in
  std::int64_t rows() const { return done_.rows; }
  std::int64_t tokens() const { return done_.tokens; }
  double forward_seconds() const { return forward_seconds_; }

 private:
  void flush_when_due();

  const CapturePlan& plan_;
  const Model& model_;
  Journal& journal_;
  std::optional<SegmentWriter> segment_;
  JournalEntry open_;  // what the segment holds
  JournalEntry done_;  // in all
  std::chrono::steady_clock::time_point opened_;
  double forward_seconds_ = 0.0;
};

}  // namespace qkscope
