// Sums over rows of values times exp(-i omega t), in float64; t is the row's place in its order,
// from the middle.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <span>

#include "base/numerics/phase_table.h"
#include "base/numerics/position_order.h"

namespace qkscope {

// S(omega) = sum z_t exp(-i omega t) with its derivatives by omega.
struct PhaseSum {
  std::complex<double> value;
  std::complex<double> slope;
  std::complex<double> bend;
};

// S around one frequency, as a series: one walk over the rows for all frequencies nearby.
class TurnedSums {
 public:
  static constexpr int kPowers = 8;

  // At omega + move.
  PhaseSum at(double move) const;
  // How far from omega the value is right to the last digits. The series leaves out about
  // (move length / 2)^8 / 8! of the sum of |z|, and what further powers of t in a block would add,
  // (128 move)^4 / 5!.
  static double exact_reach(const PositionOrder& order);

  std::array<std::complex<double>, kPowers> sum;  // of z_t t^m exp(-i omega t)
};

// Values are in the order's order.
TurnedSums turned_sums(double omega, const PositionOrder& order,
                       std::span<const std::complex<double>> values);

// What the sums over the rows of a block are made of.
namespace phase_sums {

inline constexpr std::uint32_t kBlock = PhaseTable::kBlock;
// Of t in a block.
inline constexpr int kBlockPowers = 4;

struct alignas(64) Turn {  // what a real and an imaginary part become
  double along[2];
  double across[2];
  double t[kBlockPowers - 1];  // from the block's middle, its square and so on
};

struct BlockSums {
  double sum[kBlockPowers][2];
};

}  // namespace phase_sums

}  // namespace qkscope
