#include "base/numerics/slow_sums.h"

#include <complex>

#include "base/numerics/phase_table.h"

namespace qkscope {

SlowSums::SlowSums(const PositionOrder& order, std::span<const double> values)
    : length_((order.length() + kStretches - 1) / kStretches),
      first_(0.5 * static_cast<double>(length_ - order.length())),
      per_stretch_(static_cast<std::size_t>((order.length() - 1) / length_ + 1)) {
  const double middle = 0.5 * static_cast<double>(length_ - 1);
  // Most rows lie in the stretch of the row before: their sums stay in registers.
  Moments sums{};
  std::int64_t stretch = 0;
  const auto add_sums = [&] {
    Moments& total = per_stretch_[static_cast<std::size_t>(stretch)];
    for (std::size_t m = 0; m < sums.size(); ++m) total[m] += sums[m];
    sums = {};
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto offset = order.offsets()[i] - stretch * length_;
    if (offset < 0 || offset >= length_) {
      add_sums();
      stretch = order.offsets()[i] / length_;
    }
    const double t = static_cast<double>(order.offsets()[i] - stretch * length_) - middle;
    double term = values[i];
    for (double& sum : sums) {
      sum += term;
      term *= t;
    }
  }
  add_sums();
}

PhaseSum SlowSums::at(double omega) const {
  // exp(-i omega t) = sum over m of (-i omega)^m / m! t^m: even powers are real, odd ones
  // imaginary.
  std::array<double, kPowers> factors;
  double factor = 1;
  for (std::size_t m = 0; m < kPowers; ++m) {
    factors[m] = m % 4 == 1 || m % 4 == 2 ? -factor : factor;
    factor *= omega / static_cast<double>(m + 1);
  }
  // Of z t^power exp(-i omega t) in a stretch, t from its middle.
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
      PhaseTable::multiples(omega * static_cast<double>(length_), std::ssize(per_stretch_));
  std::complex<double> sum;
  std::complex<double> times_t;
  std::complex<double> times_square;
  double start = first_;
  for (std::size_t i = 0; i < per_stretch_.size(); ++i, start += static_cast<double>(length_)) {
    const Moments& here = per_stretch_[i];
    const auto zeroth = inside(here, 0);
    const auto first = inside(here, 1);
    const auto second = inside(here, 2);
    sum += PhaseTable::product(turns[i], zeroth);
    times_t += PhaseTable::product(turns[i], start * zeroth + first);
    times_square += PhaseTable::product(turns[i], start * (start * zeroth + 2.0 * first) + second);
  }
  const auto back = std::polar(1.0, -omega * first_);
  sum = PhaseTable::product(back, sum);
  times_t = PhaseTable::product(back, times_t);
  return {sum, {times_t.imag(), -times_t.real()}, -PhaseTable::product(back, times_square)};
}

}  // namespace qkscope
