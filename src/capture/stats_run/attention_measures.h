// Measures of attention that sums over rows cannot provide: exact values from a few sorted rows,
// and the DuoAttention score of kvpress.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/backend.h"
#include "qkscope/model.h"

namespace qkscope {

// Returns `count` evenly spaced rows of [0, length), always including the last row.
std::vector<std::int64_t> evenly_spaced_rows(std::int64_t length, std::int64_t count);

// Returns keys_90 ... keys_99 (number of keys that hold 90 % ... 99 % of the attention mass), then
// top_4 ... top_1024 (mass of the largest keys) for one row. pattern: shape (keys).
std::vector<double> key_counts_and_top_mass(std::span<const float> pattern);

// Returns the mean of key_counts_and_top_mass() over `count` rows of a document, one vector per
// head. Must be called after Backend::attend().
std::vector<std::vector<double>> measure_attention_concentration(Backend& backend,
                                                                 const Sequence& sequence,
                                                                 std::int64_t longest,
                                                                 std::int64_t count);

// Repeats a head's mean query and mean key at 500 positions, applies RoPE, and returns the area
// under the cumulative attention of the last query: 1 if all attention is on the first key, near 0
// if the query attends to itself.
class MeanQkArea {
 public:
  // Vectors are not rotated in a layer without RoPE.
  MeanQkArea(const ModelConfig& model, std::int64_t layer, std::int64_t max_length);

  // query and key: shape (d), before RoPE.
  double compute(std::span<const double> query, std::span<const double> key) const;

 private:
  static constexpr std::int64_t kPositions = 500;

  double scale_;
  std::int64_t rotary_ = 0;  // rotary dimensions
  std::int64_t begin_ = 0;   // first rotary dimension
  bool interleaved_;
  std::vector<double> cos_;  // (distances, rotary / 2), including the attention factor
  std::vector<double> sin_;
};

}  // namespace qkscope
