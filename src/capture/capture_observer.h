// Takes the sampled rows of the chosen heads out of the forward pass and hands them to a segment.
#pragma once

#include <vector>

#include "backend/batch.h"
#include "capture/plan.h"
#include "capture/segment.h"
#include "forward/hooks.h"

namespace qkscope {

// One sequence of the batch.
struct CapturedExample {
  std::size_t number = 0;  // in the segment
  std::int64_t key = 0;
  std::vector<std::string> token_strings;  // one per token when they are kept
};

class CaptureObserver : public Observer {
 public:
  CaptureObserver(const CapturePlan& plan, const Batch& batch,
                  const std::vector<CapturedExample>& examples, SegmentWriter& segment);

  bool wants(HookPoint point) const override;
  Choice choice(HookPoint point) const override;
  // activation: (sampled rows, chosen heads, head_dim)
  void see(HookPoint point, ConstTensorView activation) override;

  std::int64_t rows() const { return rows_; }  // kept so far, over all heads
  double seconds() const { return seconds_; }  // spent in here

 private:
  // What is kept of one group.
  struct Sample {
    std::vector<std::vector<std::int32_t>> positions;  // by sequence
    std::vector<std::int64_t> rows;                    // of the batch, all sequences
    std::vector<std::int64_t> heads;
  };

  Sample sample(std::size_t group) const;
  std::size_t group_of(HookPoint point) const;  // the number of groups where there is none
  void keep(std::size_t group, std::size_t sequence, ConstTensorView vectors);

  const CapturePlan& plan_;
  const Batch& batch_;
  const std::vector<CapturedExample>& examples_;
  SegmentWriter& segment_;
  std::vector<Sample> samples_;  // by group
  std::vector<float> vectors_;   // (kept rows, head_dim) of one head
  std::int64_t rows_ = 0;
  double seconds_ = 0.0;
};

}  // namespace qkscope
