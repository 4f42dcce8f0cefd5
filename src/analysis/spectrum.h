// The Fourier sums of four signals at whole-number positions, on a grid of frequencies.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <memory>
#include <numbers>
#include <span>
#include <vector>

#include "analysis/fft.h"

namespace qkscope {

// One row's value in each of four complex signals.
struct FourValues {
  double re[4];
  double im[4];
};

// S(omega) = sum z_t exp(-i omega (t - origin)) at omega = k * step(). The grid has at least 1.4
// points per 2 pi / length, so that what lies between them follows from its neighbours.
class Spectrum {
 public:
  // `highest`: frequencies above it will not be asked for. The lower it is, the fewer points stand
  // for the positions: each row is spread over the eight nearest by a smooth kernel, and what the
  // kernel lets through wrongly is below 2e-3 of what it should.
  Spectrum(std::span<const std::int32_t> offsets, std::int64_t length, double highest);

  // One value per offset.
  void compute(std::span<const FourValues> values);

  double step() const {
    return 2 * std::numbers::pi / (static_cast<double>(fft_->size()) * tokens_per_point());
  }
  double origin() const { return static_cast<double>(middle_) * tokens_per_point(); }
  // Of one signal at grid point k, of either sign.
  std::complex<double> at(std::int64_t k, int signal) const;
  // |S|^2 of the four signals at grid point k.
  FourFloats power(std::int64_t k) const {
    const auto i = index(k);
    const FourComplex& value = signal_[fft_->place(i)];
    return (value.re * value.re + value.im * value.im) * (gain_[i] * gain_[i]);
  }
  // Their largest over points 8 group .. 8 group + 7.
  const FourFloats& group_power(std::int64_t group) const { return groups_[index(group)]; }
  std::int64_t size() const { return static_cast<std::int64_t>(fft_->size()); }
  // |S|^2 of one signal at grid point k and one and two quarters of a step before and after it,
  // from the grid points around it.
  std::array<double, 5> quarters(std::int64_t k, int signal) const;

 private:
  double tokens_per_point() const { return static_cast<double>(tokens_) / kPoints; }
  std::size_t index(std::int64_t k) const {
    return static_cast<std::size_t>(k) & (fft_->size() - 1);
  }
  void spread(std::span<const FourValues> values);
  void take_groups();

  static constexpr std::int64_t kPoints = 5;  // of the grid, for every `tokens_` positions
  static constexpr std::int64_t kTaps = 8;

  std::int64_t tokens_;
  std::shared_ptr<const Fft> fft_;
  std::int64_t middle_;               // the point that stands for the origin
  std::vector<float> taps_;           // (tokens_, kTaps): the kernel for every place between points
  std::vector<std::uint32_t> start_;  // (rows): the first point a row reaches
  std::vector<std::uint32_t> phase_;  // (rows): which taps
  std::vector<float> gain_;           // (size): 1 / response of the kernel, per point
  std::vector<FourComplex> signal_;   // (size + kTaps)
  std::vector<FourFloats> groups_;    // (size / 8): the largest of eight powers
};

}  // namespace qkscope
