// Accumulates the statistics of `qkscope stats` without writing files, for timing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/forward/forward.h"

namespace qkscope {

// Records some rows of the residual near the end of the network.
class ResidualRows : public Observer {
 public:
  ResidualRows(const ModelConfig& model, const Batch& batch);
  bool wants(HookPoint point) const override { return point == point_; }
  Selection selection(HookPoint) const override { return {rows_, {}}; }
  void observe(HookPoint, ConstTensorView activation) override;
  bool operator==(const ResidualRows& other) const { return values_ == other.values_; }

 private:
  HookPoint point_;
  std::vector<std::int64_t> rows_;
  std::vector<float> values_;
};

class SummedLayers : public LayerStatistics {
 public:
  // `groups`: "", "A" (moments), "AB" (near keys), "ABC" (all keys) or "ABC/16" (all keys for 1/16
  // of the queries). The forward pass does not depend on `groups`.
  SummedLayers(const ModelConfig& model, const Batch& batch, std::string groups);
  ~SummedLayers() override;
  SummedLayers(SummedLayers&&) noexcept;

  const std::string& groups() const { return groups_; }
  bool accumulates_attention() const override { return true; }
  void collect_before_rotation(Backend& backend, std::int64_t layer) override;
  void collect_after_rotation(Backend& backend, std::int64_t layer) override;
  void collect_after_attention(Backend& backend, std::int64_t layer) override;

 private:
  class Moments;
  class Attention;

  void add(Backend& backend, ActivationBuffer buffer, std::int64_t layer, bool rotated);

  const ModelConfig* model_;
  std::string groups_;
  std::int64_t bucket_size_;
  std::vector<std::unique_ptr<Moments>> moments_;  // five per layer
  std::unique_ptr<Attention> attention_;
};

}  // namespace qkscope
