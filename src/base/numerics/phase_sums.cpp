#include "base/numerics/phase_sums.h"

#include "base/core/cpu_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/numerics/phase_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using namespace phase_sums;

using ComplexTag = hn::CappedTag<double, 2>;  // the real and the imaginary part
using Vector = hn::Vec<ComplexTag>;

// Kernels avoid products of std::complex, because GCC 12 contracts them to fused multiply-adds even
// under -ffp-contract=off.

HWY_INLINE Vector multiply_by_phase(Vector re, Vector im, const PhaseFactor& turn) {
  return hn::MulAdd(re, hn::LoadU(ComplexTag(), turn.along),
                    hn::Mul(im, hn::LoadU(ComplexTag(), turn.across)));
}

// Sums over one block of z exp(-i omega t) t^m, with t relative to the middle of the block.
struct BlockPowerSums {
  Vector part[kBlockPowers];

  HWY_INLINE BlockPowerSums() {
    for (auto& sum : part) sum = hn::Zero(ComplexTag());
  }
  HWY_INLINE void add(const std::complex<double>& value, const PhaseFactor& turn) {
    const Vector here = multiply_by_phase(hn::Set(ComplexTag(), value.real()),
                                          hn::Set(ComplexTag(), value.imag()), turn);
    part[0] = hn::Add(part[0], here);
#pragma GCC unroll 3
    for (int m = 1; m < kBlockPowers; ++m)
      part[m] = hn::MulAdd(hn::Set(ComplexTag(), turn.t[m - 1]), here, part[m]);
  }
};

// Computes the Fourier sums of every block. `fine`, shape (256): exp(-i omega t) within a block.
void sum_rows_by_block_kernel(const PhaseFactor* fine, const SortedPositions& order,
                              const std::complex<double>* values, BlockFourierSums* blocks) {
  const std::int32_t* const offsets = order.offsets().data();
  const auto turn = [&](std::size_t i) -> const PhaseFactor& {
    return fine[static_cast<std::uint32_t>(offsets[i]) % kBlock];
  };
  for (std::int64_t block = 0; block < order.block_count(); ++block) {
    const auto end = order.first_row_of_block(block + 1);
    auto i = order.first_row_of_block(block);
    BlockPowerSums even;  // two independent sums hide the latency of the additions
    BlockPowerSums odd;
    for (; i + 2 <= end; i += 2) {
      even.add(values[i], turn(i));
      odd.add(values[i + 1], turn(i + 1));
    }
    if (i < end) even.add(values[i], turn(i));
#pragma GCC unroll 4
    for (int m = 0; m < kBlockPowers; ++m)
      hn::StoreU(hn::Add(even.part[m], odd.part[m]), ComplexTag(), blocks[block].sum[m]);
  }
}

// Computes the sums of z exp(-i omega t) t^m over all blocks. In blocks[b], t is relative to the
// middle of block b, which lies at coarse[b].t[0] relative to the middle of all positions.
// `coarse`, shape (blocks): phase factor of each block.
void combine_block_sums_kernel(std::span<const PhaseFactor> coarse, const BlockFourierSums* blocks,
                               double* out) {
  Vector sums[FourierSumTaylorSeries::kPowers];
  for (auto& sum : sums) sum = hn::Zero(ComplexTag());
  for (std::size_t block = 0; block < coarse.size(); ++block) {
    const PhaseFactor& turn = coarse[block];
    Vector part[kBlockPowers];  // sums of t^i (start + t)^m for the current m
#pragma GCC unroll 4
    for (int i = 0; i < kBlockPowers; ++i)
      part[i] = multiply_by_phase(hn::Set(ComplexTag(), blocks[block].sum[i][0]),
                                  hn::Set(ComplexTag(), blocks[block].sum[i][1]), turn);
    const Vector start = hn::Set(ComplexTag(), turn.t[0]);
#pragma GCC unroll 8
    for (auto& sum : sums) {
      sum = hn::Add(sum, part[0]);
#pragma GCC unroll 3
      for (int i = 0; i + 1 < kBlockPowers; ++i) part[i] = hn::MulAdd(start, part[i], part[i + 1]);
      part[kBlockPowers - 1] = hn::Mul(start, part[kBlockPowers - 1]);
    }
  }
  for (int m = 0; m < FourierSumTaylorSeries::kPowers; ++m)
    hn::StoreU(sums[m], ComplexTag(), out + 2 * m);
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
using namespace phase_sums;
namespace {

HWY_EXPORT(sum_rows_by_block_kernel);
HWY_EXPORT(combine_block_sums_kernel);

PhaseFactor make_phase_factor(const std::complex<double>& e, double t) {
  return {{e.real(), e.imag()}, {-e.imag(), e.real()}, {t, t * t, t * t * t}};
}

}  // namespace

FourierSum FourierSumTaylorSeries::evaluate(double shift) const {
  // Taylor series of the Fourier sum: S(omega + shift) = sum over m of (-i shift)^m / m! sum[m];
  // its j-th derivative uses sum[m + j].
  FourierSum result;
  std::complex<double> factor = 1;
  for (std::size_t m = 0; m < kPowers; ++m) {
    result.value += PhaseTable::complex_product(factor, sum[m]);
    if (m + 1 < kPowers) result.slope += PhaseTable::complex_product(factor, sum[m + 1]);
    if (m + 2 < kPowers) result.curvature += PhaseTable::complex_product(factor, sum[m + 2]);
    const double next = shift / to_double(m + 1);
    factor = {next * factor.imag(), -next * factor.real()};
  }
  result.slope = {result.slope.imag(), -result.slope.real()};
  result.curvature = -result.curvature;
  return result;
}

FourierSumTaylorSeries fourier_sum_taylor_series(double omega, const SortedPositions& order,
                                                 std::span<const std::complex<double>> values) {
  const PhaseTable phase(omega, order.position_extent());
  PhaseFactor fine[kBlock];
  constexpr double kHalf = 0.5 * kBlock;
  for (std::uint32_t i = 0; i < kBlock; ++i)
    fine[i] = make_phase_factor(phase.phasor_in_block(i), to_double(i) - kHalf);
  const double middle = 0.5 * to_double(order.position_extent() - 1);
  std::vector<PhaseFactor> coarse;
  for (std::int64_t block = 0; block < order.block_count(); ++block)
    coarse.push_back(
        make_phase_factor(phase.block_phasor(block), to_double(block * kBlock) + kHalf - middle));
  FourierSumTaylorSeries sums;
  std::vector<BlockFourierSums> blocks(coarse.size());
  QKSCOPE_DISPATCH(sum_rows_by_block_kernel)(fine, order, values.data(), blocks.data());
  QKSCOPE_DISPATCH(combine_block_sums_kernel)
  (coarse, blocks.data(), reinterpret_cast<double*>(sums.sum.data()));
  const auto back = std::polar(1.0, omega * middle);
  for (auto& sum : sums.sum) sum = PhaseTable::complex_product(back, sum);
  return sums;
}

LowFrequencySums::LowFrequencySums(const SortedPositions& order, std::span<const double> values)
    : length_((order.position_extent() + kSegments - 1) / kSegments),
      first_(0.5 * to_double(length_ - order.position_extent())),
      segments_(as_index((order.position_extent() - 1) / length_ + 1)) {
  const double middle = 0.5 * to_double(length_ - 1);
  // Consecutive rows mostly lie in the same segment, so the sums of one segment stay in registers.
  Moments sums{};
  std::int64_t segment = 0;
  const auto add_sums = [&] {
    Moments& total = segments_[as_index(segment)];
    for (std::size_t m = 0; m < sums.size(); ++m) total[m] += sums[m];
    sums = {};
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto offset = order.offsets()[i] - segment * length_;
    if (offset < 0 || offset >= length_) {
      add_sums();
      segment = order.offsets()[i] / length_;
    }
    const double t = to_double(order.offsets()[i] - segment * length_) - middle;
    double term = values[i];
    for (double& sum : sums) {
      sum += term;
      term *= t;
    }
  }
  add_sums();
}

FourierSum LowFrequencySums::evaluate(double omega) const {
  // Taylor series exp(-i omega t) = sum of (-i omega t)^m / m!: even terms are real, odd imaginary.
  std::array<double, kPowers> factors;
  double factor = 1;
  for (std::size_t m = 0; m < kPowers; ++m) {
    factors[m] = m % 4 == 1 || m % 4 == 2 ? -factor : factor;
    factor *= omega / to_double(m + 1);
  }
  // Fourier sum of z t^power exp(-i omega t) over a segment, t relative to its middle.
  const auto inside = [&](const Moments& sums, std::size_t power) {
    double re = 0;
    double im = 0;
    for (std::size_t m = 0; m < kPowers; m += 2) {
      re += factors[m] * sums[m + power];
      im += factors[m + 1] * sums[m + 1 + power];
    }
    return std::complex<double>(re, im);
  };
  const auto turns =
      PhaseTable::phasors_of_angle_multiples(omega * to_double(length_), std::ssize(segments_));
  std::complex<double> sum;
  std::complex<double> times_t;
  std::complex<double> times_square;
  double start = first_;
  for (std::size_t i = 0; i < segments_.size(); ++i, start += to_double(length_)) {
    const Moments& here = segments_[i];
    const auto zeroth = inside(here, 0);
    const auto first = inside(here, 1);
    const auto second = inside(here, 2);
    sum += PhaseTable::complex_product(turns[i], zeroth);
    times_t += PhaseTable::complex_product(turns[i], start * zeroth + first);
    times_square +=
        PhaseTable::complex_product(turns[i], start * (start * zeroth + 2.0 * first) + second);
  }
  const auto back = std::polar(1.0, -omega * first_);
  sum = PhaseTable::complex_product(back, sum);
  times_t = PhaseTable::complex_product(back, times_t);
  return {sum, {times_t.imag(), -times_t.real()}, -PhaseTable::complex_product(back, times_square)};
}

}  // namespace qkscope
#endif
