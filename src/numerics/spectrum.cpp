#include "numerics/spectrum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "core/made_once.h"
#include "numerics/spectrum_kernels.h"

namespace qkscope {
namespace {

constexpr double kPi = std::numbers::pi;

// A bell exp(b (sqrt(1 - x^2) - 1)) over [-1, 1]: nearly the best a kernel of its width can do.
double bell(double sharpness, double x) {
  return std::fabs(x) < 1 ? std::exp(sharpness * (std::sqrt(1 - x * x) - 1)) : 0;
}

// Of the spreading kernel; chosen for frequencies up to 2.82 radians per point.
constexpr double kSharpness = 13.25;
constexpr double kHighest = 2.82;
constexpr double kReach = 4;  // points

double kernel(double distance) {
  return bell(kSharpness, distance / kReach);
}

std::int64_t tokens_for(std::int64_t points, double highest, std::int64_t length) {
  constexpr double kMost = 64;
  if (length <= 64) return points;
  const double tokens = std::min(kMost, static_cast<double>(points) * kHighest / highest);
  return std::max(points, static_cast<std::int64_t>(tokens));
}

std::size_t size_for(double points) {
  return std::bit_ceil(static_cast<std::size_t>(std::max(64.0, 1.4 * points)));
}

// The kernel's transform at `angle` radians per point, from its values at every half point.
double response(double angle) {
  const auto& values = made_once([] {
    std::array<double, 8> half_points;
    for (std::size_t n = 0; n < half_points.size(); ++n)
      half_points[n] = kernel(0.5 * static_cast<double>(n));
    return half_points;
  });
  const double c = std::cos(0.5 * angle);
  double before = 1;
  double cosine = c;
  double sum = 0.5 * values[0];
  for (std::size_t n = 1; n < values.size(); ++n) {
    sum += values[n] * cosine;
    before = std::exchange(cosine, 2 * c * cosine - before);
  }
  return sum;
}

// A sinc under a bell that ends `side` points away.
double interpolation_weight(double x, int side, double sharpness) {
  return std::sin(kPi * x) / (kPi * x) * bell(sharpness, x / side);
}

// Weights of the 16 points around a place a quarter, a half or three quarters past a point.
// With 1.4 points per resolution cell the error is 2e-3.
constexpr int kSide = 8;
using Weights = std::array<std::array<double, 2 * kSide>, 4>;

const Weights& interpolation() {
  const auto& weights = made_once([] {
    Weights table{};
    for (std::size_t quarter = 1; quarter < 4; ++quarter)
      for (std::size_t j = 0; j < 2 * kSide; ++j)
        table[quarter][j] = interpolation_weight(
            0.25 * static_cast<double>(quarter) + (kSide - 1) - static_cast<double>(j), kSide, 7.2);
    return table;
  });
  return weights;
}

// Of the eight points around a place halfway between two, in single precision.
const float* halfway_weights() {
  const auto& weights = made_once([] {
    std::array<float, 8> taps;
    for (std::size_t j = 0; j < taps.size(); ++j)
      taps[j] = static_cast<float>(interpolation_weight(3.5 - static_cast<double>(j), 4, 3.6));
    return taps;
  });
  return weights.data();
}

}  // namespace

Spectrum::Spectrum(std::span<const std::int32_t> offsets, std::int64_t length, double highest)
    : tokens_(tokens_for(kPoints, highest, length)),
      fft_(Fft::of_size(size_for(static_cast<double>(length) / tokens_per_point()))),
      middle_(length / 2 * kPoints / tokens_),
      gain_(fft_->size(), 1.0F),
      signal_(fft_->size() + kSpreadTaps),
      points_(fft_->size() + 2 * kMargin),
      groups_(fft_->size() / 8) {
  const bool thinned = tokens_ > kPoints;
  for (std::int64_t phase = 0; phase < tokens_; ++phase)
    for (std::int64_t m = 0; m < kSpreadTaps; ++m) {
      const double distance =
          static_cast<double>(m - 3) - static_cast<double>(phase) / static_cast<double>(tokens_);
      taps_.push_back(thinned ? static_cast<float>(kernel(distance)) : (m == 3 ? 1.0F : 0.0F));
    }
  for (const auto offset : offsets) {
    const std::int64_t fine = offset * kPoints;
    start_.push_back(static_cast<std::uint32_t>(index(fine / tokens_ - 3 - middle_)));
    phase_.push_back(static_cast<std::uint32_t>(fine % tokens_));
  }
  if (!thinned) return;
  const auto last = static_cast<std::int64_t>(highest / step()) + 2 * kSide;  // and a few beyond
  for (std::int64_t k = 0; k <= std::min(last, std::ssize(gain_) / 2); ++k) {
    const double angle = 2 * kPi * static_cast<double>(k) / static_cast<double>(fft_->size());
    gain_[index(k)] = gain_[index(-k)] = static_cast<float>(1 / response(angle));
  }
}

void Spectrum::spread(std::span<const FourValues> values) {
  std::fill(signal_.begin(), signal_.end(), FourComplex{});
  spread_values(values, taps_.data(), phase_.data(), start_.data(), signal_.data());
  // What reaches past the end belongs to the beginning.
  const auto size = fft_->size();
  for (std::size_t m = 0; m < kSpreadTaps; ++m) {
    signal_[m].re += signal_[size + m].re;
    signal_[m].im += signal_[size + m].im;
  }
}

void Spectrum::compute(std::span<const FourValues> values) {
  spread(values);
  fft_->forward(std::span(signal_).first(fft_->size()));
  const auto size = fft_->size();
  FourComplex* const points = points_.data() + kMargin;
  sort_points(*fft_, signal_.data(), gain_.data(), points, groups_.data());
  std::copy_n(points + size - kMargin, kMargin, points - kMargin);
  std::copy_n(points, kMargin, points + size);
}

void Spectrum::find_above(std::int64_t begin, std::int64_t end, const FourFloats& least,
                          const FourFloats& near, std::vector<HighPoint>& found) const {
  high_powers(points_.data() + kMargin, groups_, halfway_weights(), {begin, end, least, near},
              found);
}

FourFloats Spectrum::power_after(std::size_t i) const {
  return power_between(points_.data() + kMargin + i, halfway_weights());
}

std::array<double, 5> Spectrum::quarters(std::int64_t half, int signal) const {
  // Points k - kSide .. k + kSide + 1, the first at or before the half point.
  const std::int64_t k = half >> 1;
  std::array<std::complex<double>, 2 * kSide + 2> points;
  for (int j = 0; j < std::ssize(points); ++j)
    points[static_cast<std::size_t>(j)] = at(k + j - kSide, signal);
  const auto between = [&](int quarter) {  // quarters of a step after k
    const auto first = static_cast<std::size_t>(quarter < 0 ? 0 : 1);
    const auto& weights = interpolation()[static_cast<std::size_t>((quarter + 4) % 4)];
    std::complex<double> sum;
    for (std::size_t j = 0; j < 2 * kSide; ++j) sum += weights[j] * points[first + j];
    return std::norm(sum);
  };
  const double here = std::norm(points[kSide]);
  if ((half & 1) == 0) return {between(-2), between(-1), here, between(1), between(2)};
  return {here, between(1), between(2), between(3), std::norm(points[kSide + 1])};
}

}  // namespace qkscope
