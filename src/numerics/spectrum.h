// The Fourier sums of four signals at whole-number positions, on a grid of frequencies.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <memory>
#include <numbers>
#include <span>
#include <vector>

#include "numerics/fft.h"

namespace qkscope {

struct FrequencyBand {
  double low = 0;  // radians per token, 0 <= low < high <= pi
  double high = 1;
};

// One row's value in each of four complex signals.
struct FourValues {
  double re[4];
  double im[4];
};

// |S|^2 of four signals at a half grid point.
struct HighPoint {
  std::int64_t half = 0;  // 2 i at grid point i, 2 i + 1 halfway after it
  FourFloats power;
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
  std::int64_t size() const { return static_cast<std::int64_t>(fft_->size()); }
  // Of one signal at grid point k, of either sign.
  std::complex<double> at(std::int64_t k, int signal) const {
    const FourComplex& value = points_[index(k) + kMargin];
    return {value.re[signal], value.im[signal]};
  }
  // |S|^2 of the four signals at half grid point `half`: grid points are the even ones, what lies
  // between them comes from eight points around it, to a few percent.
  FourFloats power(std::int64_t half) const {
    const auto i = index(half >> 1);
    return (half & 1) == 0 ? power_at(i) : power_after(i);
  }
  // The largest power at grid points 8 group .. 8 group + 7.
  const FourFloats& group_power(std::int64_t group) const {
    return groups_[static_cast<std::size_t>(group)];
  }
  // Half grid points from grid point `begin` to before `end` (0 <= begin, end <= size + 1) with a
  // power above `least` in some signal. Places between two grid points count where one of the two
  // is above `near`.
  void find_above(std::int64_t begin, std::int64_t end, const FourFloats& least,
                  const FourFloats& near, std::vector<HighPoint>& found) const;
  // |S|^2 of one signal at a half grid point and one and two quarters of a step before and after
  // it, from 16 points around each.
  std::array<double, 5> quarters(std::int64_t half, int signal) const;

 private:
  double tokens_per_point() const { return static_cast<double>(tokens_) / kPoints; }
  std::size_t index(std::int64_t k) const {
    return static_cast<std::size_t>(k) & (fft_->size() - 1);
  }
  void spread(std::span<const FourValues> values);
  FourFloats power_at(std::size_t i) const {
    const FourComplex& value = points_[i + kMargin];
    return value.re * value.re + value.im * value.im;
  }
  FourFloats power_after(std::size_t i) const;

  static constexpr std::int64_t kPoints = 5;  // of the grid, for every `tokens_` positions
  static constexpr std::size_t kMargin = 8;

  std::int64_t tokens_;
  std::shared_ptr<const Fft> fft_;
  std::int64_t middle_;               // the point that stands for the origin
  std::vector<float> taps_;           // (tokens_, 8): the kernel for every place between points
  std::vector<std::uint32_t> start_;  // (rows): the first point a row reaches
  std::vector<std::uint32_t> phase_;  // (rows): which taps
  std::vector<float> gain_;           // (size): 1 / response of the kernel, per point
  std::vector<FourComplex> signal_;   // (size + 8)
  std::vector<FourComplex> points_;   // (kMargin + size + kMargin): S, going round at the ends
  std::vector<FourFloats> groups_;    // (size / 8)
};

}  // namespace qkscope
