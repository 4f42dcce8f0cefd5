#include "analysis/spectrum.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace qkscope {
namespace {

// The filter at distances 0..4 tokens: the kernel exp(b (sqrt(1 - (x/4)^2) - 1)) of nonuniform
// Fourier transforms.
constexpr double kSharpness = 7.2;
constexpr int kReach = 4;
constexpr double kHighestThinned = 1.05;  // radians per token

double tap(int distance) {
  const double x = static_cast<double>(distance) / kReach;
  return std::exp(kSharpness * (std::sqrt(1 - x * x) - 1));
}

}  // namespace

Spectrum::Spectrum(std::span<const std::int32_t> offsets, std::int64_t length, double highest)
    : offsets_(offsets),
      length_(length),
      thinning_(highest <= kHighestThinned && length > 64 ? 2 : 1),
      fft_(Fft::of_size(std::max<std::size_t>(
          64, std::bit_ceil(2 * static_cast<std::size_t>((length + thinning_ - 1) / thinning_))))),
      signal_(fft_->size()),
      scratch_(fft_->size()) {
  if (thinning_ == 1) return;
  double taps[kReach + 1];
  for (int x = 0; x <= kReach; ++x) taps[x] = tap(x);
  const auto last = static_cast<std::size_t>(highest / step()) + 16;  // and a few beyond
  for (std::size_t k = 0; k <= last; ++k) {
    // cos(2w), cos(3w), cos(4w) from cos(w).
    const double c = std::cos(step() * static_cast<double>(k));
    const double c2 = 2 * c * c - 1;
    const double response = 0.5 * taps[0] + taps[1] * c + taps[2] * c2 +
                            taps[3] * c * (2 * c2 - 1) + taps[4] * (2 * c2 * c2 - 1);
    gain_.push_back(static_cast<float>(1 / (response * response)));
  }
}

double Spectrum::gain(std::int64_t k) const {
  if (gain_.empty()) return 1;
  return gain_[std::min(static_cast<std::size_t>(std::abs(k)), gain_.size() - 1)];
}

void Spectrum::compute(std::span<const double> re, std::span<const double> im) {
  std::fill(signal_.re.begin(), signal_.re.end(), 0.0F);
  std::fill(signal_.im.begin(), signal_.im.end(), 0.0F);
  if (thinning_ == 1) {
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      const auto at = static_cast<std::size_t>(offsets_[i]);
      signal_.re[at] += static_cast<float>(re[i]);
      signal_.im[at] += static_cast<float>(im[i]);
    }
  } else {
    // Point g stands for position 2 (g - 2). A position reaches the five points around it when it
    // is even, the four around it when odd.
    float taps[2][5];
    for (int m = 0; m < 5; ++m) {
      taps[0][m] = static_cast<float>(tap(std::abs(2 * m - 4)));
      taps[1][m] = m < 4 ? static_cast<float>(tap(std::abs(2 * m - 3))) : 0.0F;
    }
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      const auto odd = static_cast<std::size_t>(offsets_[i] & 1);
      const auto at = static_cast<std::size_t>(offsets_[i] >> 1) + odd;
      const auto x = static_cast<float>(re[i]);
      const auto y = static_cast<float>(im[i]);
      for (std::size_t m = 0; m < 5; ++m) {
        signal_.re[at + m] += taps[odd][m] * x;
        signal_.im[at + m] += taps[odd][m] * y;
      }
    }
  }
  fft_->forward(signal_, scratch_);
}

void Spectrum::powers(std::int64_t first, std::int64_t last, int sign,
                      std::vector<float>& out) const {
  const auto count = static_cast<std::size_t>(last - first + 1);
  out.resize(count);
  // From `first` on upwards, or downwards from the end of the grid: without wrapping inside.
  const auto mask = static_cast<std::int64_t>(fft_->size()) - 1;
  for (std::int64_t k = first; k <= last && k <= 0; ++k)
    out[static_cast<std::size_t>(k - first)] =
        static_cast<float>(std::norm(at(sign * k)) * gain(k));
  const auto from = std::max<std::int64_t>(first, 1);
  const float* const re = signal_.re.data() + ((sign * from) & mask);
  const float* const im = signal_.im.data() + ((sign * from) & mask);
  float* const to = out.data() + (from - first);
  const std::int64_t rest = last - from + 1;
  if (sign > 0) {
    for (std::int64_t i = 0; i < rest; ++i) to[i] = re[i] * re[i] + im[i] * im[i];
  } else {
    for (std::int64_t i = 0; i < rest; ++i) to[i] = re[-i] * re[-i] + im[-i] * im[-i];
  }
  if (gain_.empty()) return;
  const float* const gains = gain_.data() + from;
  for (std::int64_t i = 0; i < rest; ++i) to[i] *= gains[i];
}

double Spectrum::power_between(double k) const {
  // With its phase counted from the middle of the positions the spectrum is smooth enough for a
  // sinc under a window over eight points; with two points per resolution cell the error is 2e-3.
  constexpr int kSide = 4;
  const double middle = 0.5 * static_cast<double>(length_ - 1) + (thinning_ == 2 ? 4.0 : 0.0);
  const auto nearest = static_cast<std::int64_t>(std::floor(k));
  std::complex<double> sum;
  for (std::int64_t j = nearest - kSide + 1; j <= nearest + kSide; ++j) {
    const double x = k - static_cast<double>(j);
    const double inside = 1 - x * x / (kSide * kSide);
    if (inside <= 0) continue;
    const double angle = std::numbers::pi * x;
    const double sinc = std::fabs(x) < 1e-9 ? 1 : std::sin(angle) / angle;
    const double window = std::exp(6.3 * (std::sqrt(inside) - 1));
    sum += sinc * window * at(j) *
           std::polar(std::sqrt(gain(j)), static_cast<double>(j) * step() * middle);
  }
  return std::norm(sum);
}

}  // namespace qkscope
