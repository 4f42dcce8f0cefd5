// The Fourier sums of a signal at whole-number positions, on a grid of frequencies.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <numbers>
#include <span>
#include <vector>

#include "analysis/fft.h"

namespace qkscope {

// S(omega) = sum z_t exp(-i omega t) at omega = k * step(). The grid has at least two points per
// 2 pi / length, so that what lies between them follows from its neighbours.
class Spectrum {
 public:
  // `highest`: frequencies above it will not be asked for. When it is low enough, positions are
  // first thinned out to every second one by a short low-pass filter, which halves the work; what
  // the filter lets through wrongly is below 1e-3 of what it should.
  Spectrum(std::span<const std::int32_t> offsets, std::int64_t length, double highest);

  void compute(std::span<const double> re, std::span<const double> im);

  double step() const {
    return 2 * std::numbers::pi / (static_cast<double>(fft_->size()) * thinning_);
  }
  // At grid point k, k of either sign; only the size of the value has a meaning where thinned.
  std::complex<double> at(std::int64_t k) const {
    const auto i = static_cast<std::size_t>(k) & (fft_->size() - 1);
    return {signal_.re[i], signal_.im[i]};
  }
  // |S|^2 at grid points first..last times `sign`, in that order.
  void powers(std::int64_t first, std::int64_t last, int sign, std::vector<float>& out) const;
  // |S|^2 at a grid point plus a fraction, from the grid points around it.
  double power_between(double k) const;

 private:
  double gain(std::int64_t k) const;

  std::span<const std::int32_t> offsets_;
  std::int64_t length_;
  int thinning_;
  std::shared_ptr<const Fft> fft_;
  std::vector<float> gain_;  // 1 / response^2 of the filter, per |k|; empty when not thinned
  ComplexSignal signal_;
  ComplexSignal scratch_;
};

}  // namespace qkscope
