// The on-the-fly DuoAttention score of kvpress: estimates how far back a head attends from its mean
// query and mean key.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkscope/model.h"

namespace qkscope {

// Repeats a head's mean query and mean key at 500 positions, applies RoPE, and returns the area under
// the cumulative attention of the last query: 1 if all attention goes to the first key, near 0 if the
// query attends to itself.
class MeanArea {
 public:
  // A layer without RoPE uses the vectors unrotated.
  MeanArea(const ModelConfig& model, std::int64_t layer, std::int64_t max_length);

  // query and key: shape (d), before RoPE.
  double of(std::span<const double> query, std::span<const double> key) const;

 private:
  static constexpr std::int64_t kPositions = 500;

  double scale_;
  std::int64_t rotary_ = 0;  // rotary dimensions
  bool interleaved_;
  std::vector<double> cos_;  // (distances, rotary / 2), including the attention factor
  std::vector<double> sin_;
};

}  // namespace qkscope
