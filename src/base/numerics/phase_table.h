// exp(-i omega t) for integers t as the product of two table entries instead of a sine and a
// cosine. The error is a few ulp for any t.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace qkscope {

class PhaseTable {
 public:
  using Phases = std::vector<std::complex<double>>;

  static constexpr std::int64_t kBlock = 256;  // positions per entry of coarse()

  // Valid for 0 <= t < length.
  PhaseTable(double omega, std::int64_t length)
      : fine_(multiples(omega, kBlock)),
        coarse_(multiples(omega * static_cast<double>(kBlock), length / kBlock + 1)) {}

  std::complex<double> operator[](std::int64_t t) const {
    return product(coarse(t / kBlock), fine(t % kBlock));
  }
  // exp(-i omega t) = coarse(t / kBlock) fine(t % kBlock).
  const std::complex<double>& coarse(std::int64_t block) const {
    return coarse_[static_cast<std::size_t>(block)];
  }
  const std::complex<double>& fine(std::int64_t t) const {
    return fine_[static_cast<std::size_t>(t)];
  }

  // Complex product without the infinity checks of std::complex.
  static std::complex<double> product(const std::complex<double>& a,
                                      const std::complex<double>& b) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }

  // Returns exp(-i angle n) for 0 <= n < count, rounded up to a multiple of 64: every 64th from
  // sin() and cos(), the others by two products.
  static Phases multiples(double angle, std::int64_t count) {
    std::complex<double> small[64];
    for (std::int64_t n = 0; n < 8; ++n) {
      small[n] = at_angle(angle, n);
      small[8 * n] = at_angle(angle, 8 * n);
    }
    for (int n = 0; n < 64; ++n) small[n] = product(small[n / 8 * 8], small[n % 8]);
    Phases all;
    all.reserve(static_cast<std::size_t>(count) + 64);
    for (std::int64_t n = 0; n < count; n += 64) {
      const auto start = at_angle(angle, n);
      for (const auto& step : small) all.push_back(product(start, step));
    }
    return all;
  }

 private:
  // Returns exp(-i angle n), corrected for the rounding error of angle * n.
  static std::complex<double> at_angle(double angle, std::int64_t n) {
    const double turn = angle * static_cast<double>(n);
    const double rest = std::fma(angle, static_cast<double>(n), -turn);
    const double c = std::cos(turn);
    const double s = std::sin(turn);
    return {c - rest * s, -s - rest * c};
  }

  Phases fine_;
  Phases coarse_;
};

}  // namespace qkscope
