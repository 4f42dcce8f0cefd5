// Fourier sums S(omega) = sum z_t exp(-i omega t) over rows, in float64, for refining frequencies
// that the NUFFT found. t is the position relative to the middle of all positions.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "base/core/error.h"
#include "base/core/numbers.h"

namespace qkscope {

// exp(-i omega t) for integer t as the product of two table entries instead of a sine and a cosine.
// The error is a few ulp for any t.
class PhaseTable {
 public:
  using Phasors = std::vector<std::complex<double>>;

  static constexpr std::int64_t kBlock = 256;  // positions per entry of block_phasor()

  // Valid for 0 <= t < length.
  PhaseTable(double omega, std::int64_t length)
      : fine_(phasors_of_angle_multiples(omega, kBlock)),
        coarse_(phasors_of_angle_multiples(omega * to_double(kBlock), length / kBlock + 1)) {}

  std::complex<double> operator[](std::int64_t t) const {
    return complex_product(block_phasor(t / kBlock), phasor_in_block(t % kBlock));
  }
  // Factorisation exp(-i omega t) = block_phasor(t / kBlock) phasor_in_block(t % kBlock).
  const std::complex<double>& block_phasor(std::int64_t block) const {
    return coarse_[as_index(block)];
  }
  const std::complex<double>& phasor_in_block(std::int64_t t) const { return fine_[as_index(t)]; }

  // Complex product without the checks for infinity and NaN that std::complex makes.
  static std::complex<double> complex_product(const std::complex<double>& a,
                                              const std::complex<double>& b) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }

  // Returns exp(-i angle n) for n = 0 to count - 1, with `count` rounded up to a multiple of 64.
  // Calls sin() and cos() for every 64th value; the others are products of two such values.
  static Phasors phasors_of_angle_multiples(double angle, std::int64_t count) {
    std::complex<double> small[64];
    for (std::int64_t n = 0; n < 8; ++n) {
      small[n] = unit_phasor(angle, n);
      small[8 * n] = unit_phasor(angle, 8 * n);
    }
    for (int n = 0; n < 64; ++n) small[n] = complex_product(small[n / 8 * 8], small[n % 8]);
    Phasors all;
    all.reserve(as_index(count) + 64);
    for (std::int64_t n = 0; n < count; n += 64) {
      const auto start = unit_phasor(angle, n);
      for (const auto& step : small) all.push_back(complex_product(start, step));
    }
    return all;
  }

 private:
  // Returns exp(-i angle n), corrected for the rounding error of angle * n.
  static std::complex<double> unit_phasor(double angle, std::int64_t n) {
    const double turn = angle * to_double(n);
    const double rest = std::fma(angle, to_double(n), -turn);
    const double c = std::cos(turn);
    const double s = std::sin(turn);
    return {c - rest * s, -s - rest * c};
  }

  Phasors fine_;
  Phasors coarse_;
};

// Counting sort of rows by position into blocks of 256 positions, so that a Fourier sum over rows
// needs one coarse phase per block.
class SortedPositions {
 public:
  explicit SortedPositions(std::span<const std::int32_t> positions)
      : offset_(positions.size()), row_rank_(positions.size()) {
    const auto [low, high] = std::minmax_element(positions.begin(), positions.end());
    extent_ = static_cast<std::int64_t>(*high) - *low + 1;
    if (extent_ > kLongest)
      reject("positions run from {} to {}; frequencies are searched over at most {} tokens", *low,
             *high, kLongest);
    const std::int32_t first = *low;
    const auto block = [&](std::int32_t position) {
      return as_index((position - first) / PhaseTable::kBlock);
    };
    begin_.resize(block(*high) + 2);
    for (const auto position : positions) ++begin_[block(position) + 1];
    for (std::size_t b = 1; b < begin_.size(); ++b) begin_[b] += begin_[b - 1];
    auto next = begin_;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const auto at = next[block(positions[i])]++;
      row_rank_[i] = static_cast<std::uint32_t>(at);
      offset_[at] = positions[i] - first;
    }
  }

  std::int64_t position_extent() const { return extent_; }  // largest position - smallest + 1
  std::int64_t row_count() const { return std::ssize(offset_); }
  std::int64_t block_count() const { return std::ssize(begin_) - 1; }
  // Index of the first sorted row of a block. Block b: rows with offsets in [256 b, 256 (b + 1)).
  std::size_t first_row_of_block(std::int64_t block) const { return begin_[as_index(block)]; }
  // Shape (rows). Position minus the smallest position, in sorted order.
  std::span<const std::int32_t> offsets() const { return offset_; }
  // Shape (rows). Index of input row i in sorted order.
  std::span<const std::uint32_t> row_ranks() const { return row_rank_; }

 private:
  static constexpr std::int64_t kLongest = std::int64_t{1} << 24;  // tokens

  std::int64_t extent_ = 0;
  std::vector<std::int32_t> offset_;
  std::vector<std::uint32_t> row_rank_;
  std::vector<std::size_t> begin_;
};

// A Fourier sum S(omega) with its first and second derivatives with respect to omega.
struct FourierSum {
  std::complex<double> value;
  std::complex<double> slope;
  std::complex<double> curvature;
};

// Taylor series of a Fourier sum around one frequency, computed in one pass over the rows.
class FourierSumTaylorSeries {
 public:
  static constexpr int kPowers = 8;

  FourierSum evaluate(double shift) const;
  // Returns the largest |shift| for which evaluate(shift).value is accurate to rounding error.
  // Truncation errors relative to sum |z|: (shift position_extent() / 2)^8 / 8! for the series and
  // (128 shift)^4 / 5! because each block of 256 positions keeps only four powers of t.
  static double max_accurate_frequency_shift(const SortedPositions& order) {
    return std::min(0.12 / to_double(order.position_extent()), 8e-6);
  }

  std::array<std::complex<double>, kPowers> sum;  // [m] = sum z_t t^m exp(-i omega t)
};

// Computes the Taylor series around `omega`. values[i] belongs to position order.offsets()[i].
FourierSumTaylorSeries fourier_sum_taylor_series(double omega, const SortedPositions& order,
                                                 std::span<const std::complex<double>> values);

// Exact Fourier sums of real values at low frequencies. The positions are divided into at most 128
// segments; within a segment exp(-i omega t) is a short power series in t, so the cost of one
// frequency does not depend on the number of rows.
class LowFrequencySums {
 public:
  // values[i] belongs to position order.offsets()[i].
  LowFrequencySums(const SortedPositions& order, std::span<const double> values);

  // Computes the Fourier sum and its derivatives, equal to
  // fourier_sum_taylor_series(omega).evaluate(0) up to rounding, for frequencies up to 48 radians
  // over all positions.
  FourierSum evaluate(double omega) const;

 private:
  // Truncation of the Taylor series: if the phase grows by 48 radians over all segments, it changes
  // by 0.19 from the middle to the end of one, so the first omitted term is below 0.19^12 / 12!.
  static constexpr std::int64_t kSegments = 128;
  static constexpr std::size_t kPowers = 12;
  using Moments = std::array<double, kPowers + 2>;  // two more powers for the derivatives

  std::int64_t length_;            // positions per segment
  double first_;                   // middle of the first segment
  std::vector<Moments> segments_;  // sums of value t^m, t relative to the middle
};

// Internal types of the kernels.
namespace phase_sums {

inline constexpr std::uint32_t kBlock = PhaseTable::kBlock;
inline constexpr int kBlockPowers = 4;  // powers of t kept per block

// exp(-i omega t) as a real 2 x 2 matrix: columns `along` (its product with 1) and `across` (its
// product with i). Also stores the powers of t.
struct alignas(64) PhaseFactor {
  double along[2];
  double across[2];
  double t[kBlockPowers - 1];  // t, t^2, t^3 relative to the middle of the block
};

struct BlockFourierSums {
  double sum[kBlockPowers][2];
};

}  // namespace phase_sums

}  // namespace qkscope
