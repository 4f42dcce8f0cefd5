// Observer that reads the heads and rows of q and k that a capture samples.
#pragma once

#include <vector>

#include "qkscope/forward.h"

namespace qkscope {

class SampledHeads : public Observer {
 public:
  // Samples 300 query heads spread over all layers, their key heads, and the default sampler's
  // rows.
  static SampledHeads as_captured(const ModelConfig& model, const Batch& batch);
  // Samples one row of one head of the last layer: the same pass without the cost of sampling.
  static SampledHeads almost_none(const ModelConfig& model, const Batch& batch);

  bool wants(HookPoint point) const override { return find(point) != nullptr; }
  Selection selection(HookPoint point) const override;
  void observe(HookPoint point, ConstTensorView activation) override;

  std::int64_t values() const { return values_; }  // number of values read in all passes

 private:
  struct Sample {
    HookPoint point;
    std::vector<std::int64_t> rows;  // row indices in the batch
    std::vector<std::int64_t> heads;
  };

  const Sample* find(HookPoint point) const;

  std::vector<Sample> samples_;
  std::vector<float> copy_;  // gathered values, as a capture would store them
  std::int64_t values_ = 0;
};

}  // namespace qkscope
