#include "analysis/frequency_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <numbers>

#include "analysis/phase_table.h"
#include "core/error.h"

namespace qkscope {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 24;  // tokens

std::int64_t checked_length(std::span<const std::int32_t> positions) {
  const auto [low, high] = std::minmax_element(positions.begin(), positions.end());
  const std::int64_t length = static_cast<std::int64_t>(*high) - *low + 1;
  if (length > kLongest)
    bad_input("positions run from {} to {}; frequencies are searched over at most {} tokens", *low,
              *high, kLongest);
  return length;
}

// The peak of a parabola through three equally spaced values around a local maximum.
double parabola_peak(double left, double middle, double right) {
  const double bend = left - 2 * middle + right;
  if (bend >= 0) return middle;
  const double slope = 0.5 * (right - left);
  return middle - 0.5 * slope * slope / bend;
}

}  // namespace

FrequencySearch::FrequencySearch(std::span<const std::int32_t> positions, FrequencyBand band)
    : length_(checked_length(positions)),
      band_(band),
      // Twice the length: a peak is then sampled at least twice per half-width.
      fft_(std::bit_ceil(static_cast<std::size_t>(2 * length_))),
      signal_(fft_.size()),
      scratch_(fft_.size()) {
  const auto low = *std::min_element(positions.begin(), positions.end());
  for (const auto position : positions) offsets_.push_back(position - low);
}

double FrequencySearch::grid_step() const {
  return 2 * std::numbers::pi / static_cast<double>(fft_.size());
}

void FrequencySearch::transform(std::span<const double> re, std::span<const double> im) {
  std::fill(signal_.re.begin(), signal_.re.end(), 0.0F);
  std::fill(signal_.im.begin(), signal_.im.end(), 0.0F);
  for (std::size_t i = 0; i < offsets_.size(); ++i) {
    const auto at = static_cast<std::size_t>(offsets_[i]);
    signal_.re[at] += static_cast<float>(re[i]);
    signal_.im[at] += static_cast<float>(im[i]);
  }
  fft_.forward(signal_, scratch_);
}

// Newton's method on |S(omega)|^2, held inside one grid step around the start and inside the band.
RotationPeak FrequencySearch::refine_rotation(double omega, double sign,
                                              std::span<const double> cosine,
                                              std::span<const double> sine) const {
  const double low = std::max(band_.low, omega - grid_step());
  const double high = std::min(band_.high, omega + grid_step());
  const double middle = 0.5 * static_cast<double>(length_ - 1);
  RotationPeak best{std::clamp(omega, low, high), -1, sign < 0};
  double at = best.omega;
  for (int step = 0; step < 12; ++step) {
    const PhaseTable phase(sign * at, length_);
    std::complex<double> s0;
    std::complex<double> s1;
    std::complex<double> s2;
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      const auto e = phase[offsets_[i]];
      const std::complex<double> turned(cosine[i] * e.real() - sine[i] * e.imag(),
                                        cosine[i] * e.imag() + sine[i] * e.real());
      const double t = offsets_[i] - middle;
      s0 += turned;
      s1 += t * turned;
      s2 += t * t * turned;
    }
    const double strength = std::abs(s0) / static_cast<double>(offsets_.size());
    if (strength > best.strength) {
      best.strength = strength;
      best.omega = at;
    }
    // d/d(sign omega) S = -i s1, second derivative -s2 (a constant phase does not matter).
    const double slope = 2 * sign * std::imag(std::conj(s0) * s1);
    const double bend = 2 * std::norm(s1) - 2 * std::real(std::conj(s0) * s2);
    double next = bend < 0 ? at - slope / bend : at + std::copysign(0.25 * grid_step(), slope);
    next = std::clamp(next, low, high);
    if (std::fabs(next - at) < 1e-6 * grid_step()) break;
    at = next;
  }
  return best;
}

RotationPeak FrequencySearch::strongest_rotation(std::span<const double> cosine,
                                                 std::span<const double> sine) {
  transform(cosine, sine);
  const auto size = static_cast<std::int64_t>(fft_.size());
  const auto power = [&](std::int64_t k) {
    const auto at = static_cast<std::size_t>((k + size) & (size - 1));
    return static_cast<double>(signal_.re[at]) * signal_.re[at] +
           static_cast<double>(signal_.im[at]) * signal_.im[at];
  };
  const auto first = static_cast<std::int64_t>(std::floor(band_.low / grid_step()));
  const auto last = static_cast<std::int64_t>(std::ceil(band_.high / grid_step()));
  struct Candidate {
    double power;
    double omega;
    double sign;
  };
  std::vector<Candidate> candidates;
  double best = 0;
  for (const int sign : {1, -1}) {
    for (std::int64_t k = first; k <= last; ++k) {
      const double middle = power(sign * k);
      if (middle < 0.5 * best) continue;
      const double left = power(sign * (k - 1));
      const double right = power(sign * (k + 1));
      const bool inside = k > first && k < last;
      if (inside && (middle < left || middle < right)) continue;
      const double peak =
          inside ? parabola_peak(left, middle, right) : std::max({left, middle, right});
      best = std::max(best, inside ? peak : middle);
      candidates.push_back({peak, static_cast<double>(k) * grid_step(), static_cast<double>(sign)});
    }
  }
  RotationPeak strongest;
  // A parabola through grid values misses the true peak by less than this share of its power.
  constexpr double kDoubt = 0.1;
  for (const auto& candidate : candidates) {
    if (candidate.power < (1 - kDoubt) * best) continue;
    const auto peak = refine_rotation(candidate.omega, candidate.sign, cosine, sine);
    if (peak.strength > strongest.strength) strongest = peak;
  }
  return strongest;
}

}  // namespace qkscope
