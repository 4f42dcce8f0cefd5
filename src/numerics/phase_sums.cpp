#include "numerics/phase_sums.h"

#include <vector>

#include "core/cpu_target.h"
#include "numerics/phase_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/phase_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using namespace phase_sums;

using Two = hn::CappedTag<double, 2>;  // the real and the imaginary part
using Vector = hn::Vec<Two>;

// Kernels sum over the rows of a block. Products of complex numbers stay out of them: where there
// are fused multiply-adds GCC 12 fuses those, also under -ffp-contract=off.

// sums (blocks, 3): of once, twice and values times once over the rows of each block.
void wave_kernel(const WaveTurn* turns, const PositionOrder& order, const double* values,
                 BlockSums* sums) {
  const auto offsets = order.offsets();
  for (std::int64_t block = 0; block < order.blocks(); ++block) {
    Vector ones = hn::Zero(Two());
    Vector doubled = hn::Zero(Two());
    Vector turned = hn::Zero(Two());
    for (std::size_t i = order.begin(block); i < order.begin(block + 1); ++i) {
      const WaveTurn& turn = turns[offsets[i] % kBlock];
      const Vector once = hn::LoadU(Two(), turn.once);
      ones = hn::Add(ones, once);
      doubled = hn::Add(doubled, hn::LoadU(Two(), turn.twice));
      turned = hn::MulAdd(hn::Set(Two(), values[i]), once, turned);
    }
    hn::StoreU(ones, Two(), sums[block].sum[0]);
    hn::StoreU(doubled, Two(), sums[block].sum[1]);
    hn::StoreU(turned, Two(), sums[block].sum[2]);
  }
}

// sums (blocks, 3): of the turned values, the same times t and times t^2, t from the block's
// middle.
void turned_kernel(const Turn* turns, const PositionOrder& order, const FourValues* values,
                   int signal, BlockSums* sums) {
  const auto offsets = order.offsets();
  for (std::int64_t block = 0; block < order.blocks(); ++block) {
    Vector s0 = hn::Zero(Two());
    Vector s1 = hn::Zero(Two());
    Vector s2 = hn::Zero(Two());
    for (std::size_t i = order.begin(block); i < order.begin(block + 1); ++i) {
      const Turn& turn = turns[offsets[i] % kBlock];
      const Vector across =
          hn::Mul(hn::Set(Two(), values[i].im[signal]), hn::LoadU(Two(), turn.across));
      const Vector turned =
          hn::MulAdd(hn::Set(Two(), values[i].re[signal]), hn::LoadU(Two(), turn.along), across);
      s0 = hn::Add(s0, turned);
      s1 = hn::MulAdd(hn::Set(Two(), turn.t), turned, s1);
      s2 = hn::MulAdd(hn::Set(Two(), turn.t * turn.t), turned, s2);
    }
    hn::StoreU(s0, Two(), sums[block].sum[0]);
    hn::StoreU(s1, Two(), sums[block].sum[1]);
    hn::StoreU(s2, Two(), sums[block].sum[2]);
  }
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
using namespace phase_sums;
namespace {

HWY_EXPORT(wave_kernel);
HWY_EXPORT(turned_kernel);

// What one of a block's sums is as seen from the first row: turned by the block's phase.
std::complex<double> turned_by(const std::complex<double>& phase, const double (&sum)[2]) {
  return PhaseTable::product(phase, {sum[0], sum[1]});
}

}  // namespace

WaveSums wave_sums(double omega, const PositionOrder& order, std::span<const double> values) {
  const PhaseTable phase(omega, order.length());
  WaveTurn turns[kBlock];
  for (std::int64_t t = 0; t < kBlock; ++t) {
    const auto& e = phase.fine(t);
    turns[t] = {{e.real(), e.imag()},
                {e.real() * e.real() - e.imag() * e.imag(), 2 * e.real() * e.imag()}};
  }
  std::vector<BlockSums> blocks(static_cast<std::size_t>(order.blocks()));
  QKSCOPE_DISPATCH(wave_kernel)(turns, order, values.data(), blocks.data());
  WaveSums sums;
  for (std::int64_t block = 0; block < order.blocks(); ++block) {
    const auto& [sum] = blocks[static_cast<std::size_t>(block)];
    const auto& e = phase.coarse(block);
    sums.once += turned_by(e, sum[0]);
    sums.twice += turned_by(PhaseTable::product(e, e), sum[1]);
    sums.values += turned_by(e, sum[2]);
  }
  return sums;
}

TurnedSums turned_sums(double omega, const PositionOrder& order, std::span<const FourValues> values,
                       int signal) {
  const PhaseTable phase(omega, order.length());
  Turn turns[kBlock];
  for (std::int64_t t = 0; t < kBlock; ++t) {
    const auto& e = phase.fine(t);
    turns[t] = {{e.real(), e.imag()}, {-e.imag(), e.real()}, static_cast<double>(t - kBlock / 2)};
  }
  std::vector<BlockSums> blocks(static_cast<std::size_t>(order.blocks()));
  QKSCOPE_DISPATCH(turned_kernel)(turns, order, values.data(), signal, blocks.data());
  const double middle = 0.5 * static_cast<double>(order.length() - 1);
  TurnedSums sums;
  for (std::int64_t block = 0; block < order.blocks(); ++block) {
    const double t = static_cast<double>(block * kBlock + kBlock / 2) - middle;
    const auto& [sum] = blocks[static_cast<std::size_t>(block)];
    const auto c0 = turned_by(phase.coarse(block), sum[0]);
    const auto c1 = turned_by(phase.coarse(block), sum[1]);
    const auto c2 = turned_by(phase.coarse(block), sum[2]);
    sums.s0 += c0;
    sums.s1 += c1 + t * c0;
    sums.s2 += c2 + 2 * t * c1 + t * t * c0;
  }
  return sums;
}

}  // namespace qkscope
#endif
