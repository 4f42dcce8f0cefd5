#include "analysis/spectrum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

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
  static const auto values = [] {
    std::array<double, 8> half_points;
    for (std::size_t n = 0; n < half_points.size(); ++n)
      half_points[n] = kernel(0.5 * static_cast<double>(n));
    return half_points;
  }();
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

// Weights of the 16 points around a place a quarter, a half or three quarters past a point: a sinc
// under a bell. With 1.4 points per resolution cell the error is 2e-3.
constexpr int kSide = 8;
using Weights = std::array<std::array<double, 2 * kSide>, 4>;

const Weights& interpolation() {
  static const Weights weights = [] {
    Weights table{};
    for (std::size_t quarter = 1; quarter < 4; ++quarter)
      for (std::size_t j = 0; j < 2 * kSide; ++j) {
        const double x = 0.25 * static_cast<double>(quarter) + (kSide - 1) - static_cast<double>(j);
        table[quarter][j] = std::sin(kPi * x) / (kPi * x) * bell(7.2, x / kSide);
      }
    return table;
  }();
  return weights;
}

}  // namespace

Spectrum::Spectrum(std::span<const std::int32_t> offsets, std::int64_t length, double highest)
    : tokens_(tokens_for(kPoints, highest, length)),
      fft_(Fft::of_size(size_for(static_cast<double>(length) / tokens_per_point()))),
      middle_(length / 2 * kPoints / tokens_),
      gain_(fft_->size(), 1.0F),
      signal_(fft_->size() + kTaps),
      groups_(fft_->size() / 8) {
  const bool thinned = tokens_ > kPoints;
  for (std::int64_t phase = 0; phase < tokens_; ++phase)
    for (std::int64_t m = 0; m < kTaps; ++m) {
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
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto& row = values[i];
    const FourFloats re = {static_cast<float>(row.re[0]), static_cast<float>(row.re[1]),
                           static_cast<float>(row.re[2]), static_cast<float>(row.re[3])};
    const FourFloats im = {static_cast<float>(row.im[0]), static_cast<float>(row.im[1]),
                           static_cast<float>(row.im[2]), static_cast<float>(row.im[3])};
    const float* const taps = taps_.data() + phase_[i] * kTaps;
    FourComplex* const to = signal_.data() + start_[i];
#pragma GCC unroll 8
    for (std::int64_t m = 0; m < kTaps; ++m) {
      to[m].re += taps[m] * re;
      to[m].im += taps[m] * im;
    }
  }
  // What reaches past the end belongs to the beginning.
  const auto size = fft_->size();
  for (std::size_t m = 0; m < kTaps; ++m) signal_[m] = signal_[m] + signal_[size + m];
}

void Spectrum::compute(std::span<const FourValues> values) {
  spread(values);
  fft_->forward(std::span(signal_).first(fft_->size()));
  take_groups();
}

std::complex<double> Spectrum::at(std::int64_t k, int signal) const {
  const auto i = index(k);
  const FourComplex& value = signal_[fft_->place(i)];
  return static_cast<double>(gain_[i]) * std::complex<double>(value.re[signal], value.im[signal]);
}

void Spectrum::take_groups() {
  // Values an eighth of the grid apart lie in neighbouring places: taken one after the other, every
  // cache line is read once.
  const std::size_t eighth = fft_->size() / 8;
  for (std::size_t low = 0; low < eighth; low += 8)
    for (std::size_t k = low; k < fft_->size(); k += eighth) {
      const FourComplex* const from = signal_.data() + fft_->place(k);
      FourFloats largest{};
#pragma GCC unroll 8
      for (std::size_t r = 0; r < 8; ++r) {
        const FourComplex& value = from[r * eighth];
        const FourFloats power =
            (value.re * value.re + value.im * value.im) * (gain_[k + r] * gain_[k + r]);
        largest = power > largest ? power : largest;
      }
      groups_[k / 8] = largest;
    }
}

std::array<double, 5> Spectrum::quarters(std::int64_t k, int signal) const {
  // Points k - kSide .. k + kSide: for places before k the interpolation starts one point earlier.
  std::array<std::complex<double>, 2 * kSide + 1> points;
  for (int j = 0; j <= 2 * kSide; ++j)
    points[static_cast<std::size_t>(j)] = at(k + j - kSide, signal);
  const auto between = [&](std::size_t quarter, std::size_t first) {
    std::complex<double> sum;
    for (std::size_t j = 0; j < 2 * kSide; ++j)
      sum += interpolation()[quarter][j] * points[first + j];
    return std::norm(sum);
  };
  return {between(2, 0), between(3, 0), std::norm(points[kSide]), between(1, 1), between(2, 1)};
}

}  // namespace qkscope
