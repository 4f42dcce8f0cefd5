// exp(-i omega t) for whole numbers t from two short tables: one product instead of a sine and a
// cosine; good to a few units in the last place.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace qkscope {

class PhaseTable {
 public:
  // For 0 <= t < length.
  PhaseTable(double omega, std::int64_t length)
      : fine_(multiples(omega, kFine)),
        coarse_(multiples(omega * static_cast<double>(kFine), length / kFine + 1)) {}

  std::complex<double> operator[](std::int64_t t) const {
    const auto at = static_cast<std::size_t>(t);
    return product(coarse_[at / kFine], fine_[at % kFine]);
  }

 private:
  using Phases = std::vector<std::complex<double>>;
  static constexpr std::int64_t kFine = 256;

  static std::complex<double> product(const std::complex<double>& a,
                                      const std::complex<double>& b) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }

  // exp(-i angle n) for n < count: every 16th from the library, the others by one product.
  static Phases multiples(double angle, std::int64_t count) {
    Phases small;
    for (int n = 0; n < 16; ++n) small.push_back(at_angle(angle * n));
    Phases all;
    for (std::int64_t n = 0; n < count; n += 16) {
      const auto start = at_angle(angle * static_cast<double>(n));
      for (const auto& step : small) all.push_back(product(start, step));
    }
    return all;
  }

  static std::complex<double> at_angle(double angle) { return {std::cos(angle), -std::sin(angle)}; }

  Phases fine_;
  Phases coarse_;
};

}  // namespace qkscope
