#include "numerics/phase_sums.h"

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

using Two = hn::CappedTag<double, 2>;  // the real and the imaginary part
using Vector = hn::Vec<Two>;
constexpr auto kBlock = PhaseTable::kBlock;

HWY_INLINE std::complex<double> complex_of(Vector value) {
  double both[2];
  hn::StoreU(value, Two(), both);
  return {both[0], both[1]};
}

WaveSums wave_kernel(const PhaseTable& phase, const PositionOrder& order, const double* values) {
  struct Turn {  // exp(-i omega t) and its square
    double once[2];
    double twice[2];
  };
  Turn turns[kBlock];
  for (std::int64_t t = 0; t < kBlock; ++t) {
    const auto& e = phase.fine(t);
    turns[t] = {{e.real(), e.imag()},
                {e.real() * e.real() - e.imag() * e.imag(), 2 * e.real() * e.imag()}};
  }
  const auto offsets = order.offsets();
  WaveSums sums;
  for (std::int64_t block = 0; block < order.blocks(); ++block) {
    Vector ones = hn::Zero(Two());
    Vector doubled = hn::Zero(Two());
    Vector turned = hn::Zero(Two());
    for (std::size_t i = order.begin(block); i < order.begin(block + 1); ++i) {
      const Turn& turn = turns[offsets[i] % kBlock];
      const Vector once = hn::LoadU(Two(), turn.once);
      ones = hn::Add(ones, once);
      doubled = hn::Add(doubled, hn::LoadU(Two(), turn.twice));
      turned = hn::MulAdd(hn::Set(Two(), values[i]), once, turned);
    }
    const auto& e = phase.coarse(block);
    sums.once += PhaseTable::product(e, complex_of(ones));
    sums.twice += PhaseTable::product(PhaseTable::product(e, e), complex_of(doubled));
    sums.values += PhaseTable::product(e, complex_of(turned));
  }
  return sums;
}

TurnedSums turned_kernel(const PhaseTable& phase, const PositionOrder& order,
                         const FourValues* values, int signal) {
  // What a real and an imaginary part become, and the distance from the block's middle.
  struct Turn {
    double along[2];
    double across[2];
    double t;
  };
  Turn turns[kBlock];
  for (std::int64_t t = 0; t < kBlock; ++t) {
    const auto& e = phase.fine(t);
    turns[t] = {{e.real(), e.imag()}, {-e.imag(), e.real()}, static_cast<double>(t - kBlock / 2)};
  }
  const double middle = 0.5 * static_cast<double>(order.length() - 1);
  const auto offsets = order.offsets();
  TurnedSums sums;
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
    const double t = static_cast<double>(block * kBlock + kBlock / 2) - middle;
    const auto& coarse = phase.coarse(block);
    const auto c0 = PhaseTable::product(coarse, complex_of(s0));
    const auto c1 = PhaseTable::product(coarse, complex_of(s1));
    const auto c2 = PhaseTable::product(coarse, complex_of(s2));
    sums.s0 += c0;
    sums.s1 += c1 + t * c0;
    sums.s2 += c2 + 2 * t * c1 + t * t * c0;
  }
  return sums;
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

HWY_EXPORT(wave_kernel);
HWY_EXPORT(turned_kernel);

}  // namespace

WaveSums wave_sums(double omega, const PositionOrder& order, std::span<const double> values) {
  const PhaseTable phase(omega, order.length());
  return QKSCOPE_DISPATCH(wave_kernel)(phase, order, values.data());
}

TurnedSums turned_sums(double omega, const PositionOrder& order, std::span<const FourValues> values,
                       int signal) {
  const PhaseTable phase(omega, order.length());
  return QKSCOPE_DISPATCH(turned_kernel)(phase, order, values.data(), signal);
}

}  // namespace qkscope
#endif
