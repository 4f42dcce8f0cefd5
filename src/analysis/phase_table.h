// exp(-i omega t) for whole numbers t from two short tables: one product instead of a sine and a
// cosine.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace qkscope {

class PhaseTable {
 public:
  // For 0 <= t < length.
  PhaseTable(double omega, std::int64_t length) {
    for (std::int64_t t = 0; t < kFine; ++t)
      fine_.push_back(at_angle(omega * static_cast<double>(t)));
    for (std::int64_t t = 0; t < length; t += kFine)
      coarse_.push_back(at_angle(omega * static_cast<double>(t)));
  }

  std::complex<double> operator[](std::int64_t t) const {
    const auto& a = coarse_[static_cast<std::size_t>(t / kFine)];
    const auto& b = fine_[static_cast<std::size_t>(t % kFine)];
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  }

 private:
  static constexpr std::int64_t kFine = 256;
  static std::complex<double> at_angle(double angle) { return {std::cos(angle), -std::sin(angle)}; }

  std::vector<std::complex<double>> fine_;
  std::vector<std::complex<double>> coarse_;
};

}  // namespace qkscope
