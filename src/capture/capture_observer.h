// Takes the sampled rows of the chosen heads out of the forward pass and hands them to a segment.
#pragma once

#include <string_view>
#include <vector>

#include "capture/capture_plan.h"
#include "capture/prepared_batch.h"
#include "captures/segment.h"
#include "qkscope/forward.h"

namespace qkscope {

class CaptureObserver : public Observer {
 public:
  // `first`: the number in the segment of the batch's first example.
  CaptureObserver(const CapturePlan& plan, const PreparedBatch& prepared, SegmentWriter& segment,
                  std::size_t first);

  bool wants(HookPoint point) const override;
  Selection selection(HookPoint point) const override;
  // activation: (sampled rows, chosen heads, head_dim)
  void see(HookPoint point, ConstTensorView activation) override;

  std::int64_t rows() const { return rows_; }  // kept so far, over all heads
  double seconds() const { return seconds_; }  // spent in here

 private:
  std::size_t group_of(HookPoint point) const;  // the number of groups where there is none
  void pick_strings(const Example& example, std::span<const std::int32_t> positions);

  const CapturePlan& plan_;
  const PreparedBatch& prepared_;
  SegmentWriter& segment_;
  std::size_t first_;
  std::vector<std::string_view> strings_;  // of one block
  std::int64_t rows_ = 0;
  double seconds_ = 0.0;
};

}  // namespace qkscope
