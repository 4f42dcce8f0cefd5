// Sums over rows of values times exp(-i omega t), in float64; t is the row's place in its order.
#pragma once

#include <complex>
#include <cstdint>
#include <span>

#include "numerics/phase_table.h"
#include "numerics/position_order.h"
#include "numerics/spectrum.h"

namespace qkscope {

// E(omega) = sum exp(-i omega t), E(2 omega), and the values times exp(-i omega t); t from 0.
struct WaveSums {
  std::complex<double> once;
  std::complex<double> twice;
  std::complex<double> values;
};
// One value per row, in the order's order.
WaveSums wave_sums(double omega, const PositionOrder& order, std::span<const double> values);

// Sums of z_t exp(-i omega t), and of the same times t and t^2; t from the middle.
struct TurnedSums {
  std::complex<double> s0;
  std::complex<double> s1;
  std::complex<double> s2;
};
// Of one of the four signals.
TurnedSums turned_sums(double omega, const PositionOrder& order, std::span<const FourValues> values,
                       int signal);

// What the sums over the rows of a block are made of.
namespace phase_sums {

inline constexpr auto kBlock = PhaseTable::kBlock;

struct WaveTurn {  // exp(-i omega t) and its square
  double once[2];
  double twice[2];
};

struct Turn {  // what a real and an imaginary part become
  double along[2];
  double across[2];
  double t;  // from the block's middle
};

struct BlockSums {
  double sum[3][2];
};

}  // namespace phase_sums

}  // namespace qkscope
