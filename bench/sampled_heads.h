// An observer that looks at q and k as a capture run does: the heads and rows it samples, no more.
#pragma once

#include <vector>

#include "qkscope/forward.h"

namespace qkscope {

class SampledHeads : public Observer {
 public:
  // Of every layer 300 query heads in all, their key heads, and the rows of the default sampler.
  static SampledHeads as_captured(const ModelConfig& model, const Batch& batch);
  // One row of one head of the last layer: the same network with nothing to sample on the way.
  static SampledHeads almost_none(const ModelConfig& model, const Batch& batch);

  bool wants(HookPoint point) const override { return find(point) != nullptr; }
  Selection selection(HookPoint point) const override;
  void see(HookPoint point, ConstTensorView activation) override;

  std::int64_t values() const { return values_; }  // seen in all passes

 private:
  struct Sample {
    HookPoint point;
    std::vector<std::int64_t> rows;  // of the batch
    std::vector<std::int64_t> heads;
  };

  const Sample* find(HookPoint point) const;

  std::vector<Sample> samples_;
  std::vector<float> copy_;  // what a capture would hand on
  std::int64_t values_ = 0;
};

}  // namespace qkscope
