// Fourier sums S(omega) = sum z_t exp(-i omega t) over rows, in float64, for refining frequencies
// that the NUFFT found. t is the position relative to the middle of all positions.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "base/numerics/phase_table.h"

namespace qkscope {

// S(omega) with its first and second derivatives with respect to omega.
struct PhaseSum {
  std::complex<double> value;
  std::complex<double> slope;
  std::complex<double> curvature;
};

// Taylor series of S around one frequency: one pass over the rows serves all nearby frequencies.
class PhaseSumSeries {
 public:
  static constexpr int kPowers = 8;

  // Returns S(omega + shift).
  PhaseSum at(double shift) const;
  // Returns the largest |shift| at which the value is accurate to rounding. The truncation errors,
  // relative to sum |z|, are (shift length / 2)^8 / 8! of the series and (128 shift)^4 / 5! of the
  // powers of t within a block.
  static double largest_exact_shift(const PositionOrder& order);

  std::array<std::complex<double>, kPowers> sum;  // [m] = sum z_t t^m exp(-i omega t)
};

// `values` are in the order of `order`.
PhaseSumSeries phase_sum_series(double omega, const PositionOrder& order,
                                std::span<const std::complex<double>> values);

// Exact sums of real values at low frequencies. The positions are divided into at most 128
// segments; within a segment exp(-i omega t) is a short power series in t, so a query costs the
// same for any number of rows.
class LowFrequencySums {
 public:
  // `values` are in the order of `order`.
  LowFrequencySums(const PositionOrder& order, std::span<const double> values);

  // Returns the same as phase_sum_series(omega).at(0), to rounding, for frequencies up to 48
  // radians over all positions.
  PhaseSum at(double omega) const;

 private:
  // At 48 radians the phase changes by 0.19 from the middle to the end of a segment, so the first
  // omitted power contributes 0.19^12 / 12!.
  static constexpr std::int64_t kSegments = 128;
  static constexpr std::size_t kPowers = 12;
  // Two more powers for the derivatives.
  using Moments = std::array<double, kPowers + 2>;

  std::int64_t length_;            // positions per segment
  double first_;                   // middle of the first segment
  std::vector<Moments> segments_;  // sums of value t^m, t relative to the middle
};

// Internal types of the kernels.
namespace phase_sums {

inline constexpr std::uint32_t kBlock = PhaseTable::kBlock;
// Powers of t kept per block.
inline constexpr int kBlockPowers = 4;

// exp(-i omega t) as a real 2 x 2 matrix: columns `along` (its product with 1) and `across` (its
// product with i). Also stores the powers of t.
struct alignas(64) PhaseFactor {
  double along[2];
  double across[2];
  double t[kBlockPowers - 1];  // t, t^2, t^3 relative to the middle of the block
};

struct BlockSums {
  double sum[kBlockPowers][2];
};

}  // namespace phase_sums

}  // namespace qkscope
