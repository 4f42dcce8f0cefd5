// The attention patterns of all layers, block of rows by block: no square is held.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "qkscope/forward.h"
#include "qkscope/model.h"

namespace qkscope {

class PatternRows : public Observer {
 public:
  // What query `row` of a head pays to the keys (tokens). Called for several heads at once, for the
  // rows of one head in order.
  using Take = std::function<void(std::int64_t layer, std::int64_t head, std::int64_t row,
                                  const float* pattern)>;

  PatternRows(const ModelConfig& model, std::span<const std::int32_t> text, Take take);

  void run(const Model& model);

  bool wants(HookPoint point) const override { return point.stage == Stage::pattern; }
  std::span<const std::int64_t> score_rows() const override { return rows_; }
  void see(HookPoint point, ConstTensorView pattern) override;  // (heads, rows, keys)

 private:
  std::int64_t tokens_;
  std::int64_t heads_;
  Take take_;
  Batch batch_;
  std::vector<std::int64_t> rows_;  // of the block
};

}  // namespace qkscope
