// kvpress' on-the-fly measure of how far back a head looks, from mean queries and keys alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkscope/model.h"

namespace qkscope {

// A head's mean query and mean key stand at 500 positions each and are rotated there; of the
// attention of the last one, cumulated over the keys, the area: 1 where it looks at the first key
// alone, near 0 where at itself.
class MeanArea {
 public:
  // Without RoPE nothing is rotated.
  MeanArea(const ModelConfig& model, std::int64_t layer, std::int64_t max_length);

  // Both (d), before RoPE.
  double of(std::span<const double> query, std::span<const double> key) const;

 private:
  static constexpr std::int64_t kPositions = 500;

  double scale_;
  std::int64_t rotary_ = 0;  // dimensions that are rotated
  bool interleaved_;
  std::vector<double> cos_;  // (positions, rotary / 2) by distance, with the attention factor
  std::vector<double> sin_;
};

}  // namespace qkscope
