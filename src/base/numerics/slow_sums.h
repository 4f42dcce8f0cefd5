// Sums over rows of real values times exp(-i omega t) for waves of few radians over all positions:
// such a wave hardly turns within a short stretch, where a few powers of t stand for the rows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/numerics/phase_sums.h"
#include "base/numerics/position_order.h"

namespace qkscope {

// Walks over the rows once; what is asked for then costs the same however many rows there are.
class SlowSums {
 public:
  // Values are in the order's order.
  SlowSums(const PositionOrder& order, std::span<const double> values);

  // As turned_sums() gives it, to the last digits where omega is at most 48 radians over all
  // positions.
  PhaseSum at(double omega) const;

 private:
  // A wave of 48 radians turns by 0.19 on either side of a stretch's middle: the power left out
  // adds 0.19^12 / 12!.
  static constexpr std::int64_t kStretches = 128;
  static constexpr std::size_t kPowers = 12;
  // Derivatives take later powers.
  using Moments = std::array<double, kPowers + 2>;

  std::int64_t length_;               // of a stretch
  double first_;                      // the middle of the first stretch
  std::vector<Moments> per_stretch_;  // sums of values times powers of t from its middle
};

}  // namespace qkscope
