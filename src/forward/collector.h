// An observer that keeps what chosen hook points show.
#pragma once

#include <cstdint>
#include <vector>

#include "forward/hooks.h"

namespace qkscope {

class Collector : public Observer {
 public:
  struct Kept {
    HookPoint point;
    Tensor activation;
  };

  // `rows` of the batch are kept, of scores and patterns those query rows; empty: all.
  Collector(std::vector<HookPoint> points, std::vector<std::int64_t> rows)
      : points_(std::move(points)), rows_(std::move(rows)) {}

  bool wants(HookPoint point) const override;
  Selection selection(HookPoint point) const override;
  void see(HookPoint point, ConstTensorView activation) override;
  std::span<const std::int64_t> score_rows() const override { return rows_; }

  std::vector<Kept>& kept() { return kept_; }  // in the order of firing

 private:
  std::vector<HookPoint> points_;
  std::vector<std::int64_t> rows_;
  std::vector<Kept> kept_;
};

// Refuses squares of scores and patterns that cannot be held, before they are computed: more than
// 16 GiB for `rows` queries x `keys`. `how` says where positions are chosen ("--positions").
void check_score_size(const ModelConfig& model, std::span<const HookPoint> points,
                      std::int64_t rows, std::int64_t keys, std::string_view how);

}  // namespace qkscope
