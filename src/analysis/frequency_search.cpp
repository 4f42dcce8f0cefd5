#include "analysis/frequency_search.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <utility>

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

std::vector<std::int32_t> offsets_of(std::span<const std::int32_t> positions) {
  const auto low = *std::min_element(positions.begin(), positions.end());
  std::vector<std::int32_t> offsets;
  for (const auto position : positions) offsets.push_back(position - low);
  return offsets;
}

// The top of a parabola through a local maximum and its neighbours.
double parabola_top(double left, double middle, double right) {
  const double bend = left - 2 * middle + right;
  const double slope = 0.5 * (right - left);
  return bend < 0 ? middle - 0.5 * slope * slope / bend : std::max({left, middle, right});
}

struct Candidate {
  double k;  // grid point, with a fraction, in units of the grid step; of either sign
  double power;
};

// Climbs from a local maximum of the grid to the top of the peak between its neighbours.
Candidate top_of_peak(const Spectrum& spectrum, std::int64_t k) {
  Candidate best{static_cast<double>(k), 0};
  for (const double width : {0.5, 0.25, 0.125}) {
    const double left = spectrum.power_between(best.k - width);
    const double middle = spectrum.power_between(best.k);
    const double right = spectrum.power_between(best.k + width);
    const double bend = left - 2 * middle + right;
    const double slope = 0.5 * (right - left);
    const double move = bend < 0 ? std::clamp(-slope / bend, -1.0, 1.0) : 0.0;
    best.k += move * width;
    best.power = std::max(best.power, middle);
  }
  best.power = std::max(best.power, spectrum.power_between(best.k));
  return best;
}

}  // namespace

FrequencySearch::FrequencySearch(std::span<const std::int32_t> positions, FrequencyBand band)
    : offsets_(offsets_of(positions)),
      length_(checked_length(positions)),
      band_(band),
      spectrum_(offsets_, length_, band.high) {}

// Newton's method on |S(omega)|^2, held inside one grid step around the start and inside the band.
RotationPeak FrequencySearch::refine_rotation(double omega, double sign,
                                              std::span<const double> cosine,
                                              std::span<const double> sine) const {
  const double step = spectrum_.step();
  const double low = std::max(band_.low, omega - step);
  const double high = std::min(band_.high, omega + step);
  const double middle = 0.5 * static_cast<double>(length_ - 1);
  const auto count = static_cast<double>(offsets_.size());
  RotationPeak best{std::clamp(omega, low, high), -1, sign < 0};
  double at = best.omega;
  for (int round = 0; round < 20; ++round) {
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
    if (std::abs(s0) / count > best.strength) {
      best.strength = std::abs(s0) / count;
      best.omega = at;
    }
    // d/d(sign omega) S = -i s1, second derivative -s2 (a constant phase does not matter).
    const double slope = 2 * sign * std::imag(std::conj(s0) * s1);
    const double bend = 2 * std::norm(s1) - 2 * std::real(std::conj(s0) * s2);
    const double move = bend < 0 ? -slope / bend : std::copysign(0.25 * step, slope);
    const double next = std::clamp(at + move, low, high);
    if (std::fabs(next - at) < 1e-3 * step && bend < 0 && next == at + move) {
      // So near the top the parabola is exact: the error is of third order in a thousandth.
      best.omega = next;
      best.strength = std::sqrt(std::norm(s0) - 0.5 * slope * slope / bend) / count;
      break;
    }
    if (next == at) break;
    at = next;
  }
  return best;
}

RotationPeak FrequencySearch::strongest_rotation(std::span<const double> cosine,
                                                 std::span<const double> sine) {
  spectrum_.compute(cosine, sine);
  const double step = spectrum_.step();
  const auto first = static_cast<std::int64_t>(std::floor(band_.low / step));
  const auto last = static_cast<std::int64_t>(std::ceil(band_.high / step));
  // A peak halfway between two grid points keeps 0.81 of its power on them, and the parabola
  // through the three highest points reaches 0.90 of it; leave some room for peaks that overlap.
  constexpr double kSeen = 0.6;
  constexpr double kSeenByParabola = 0.8;
  std::vector<std::pair<std::int64_t, double>> maxima;  // of the grid: point, parabola's top
  double highest = 0;
  for (const int sign : {1, -1}) {
    spectrum_.powers(first - 1, last + 1, sign, powers_);
    for (std::size_t i = 1; i + 1 < powers_.size(); ++i) {
      const double power = powers_[i];
      if (power <= kSeen * highest) continue;
      const bool edge = i == 1 || i + 2 == powers_.size();
      if (!edge && (powers_[i] < powers_[i - 1] || powers_[i] < powers_[i + 1])) continue;
      const double top = parabola_top(powers_[i - 1], power, powers_[i + 1]);
      maxima.emplace_back(sign * (first - 1 + static_cast<std::int64_t>(i)), top);
      highest = std::max(highest, edge ? power : top);
    }
  }
  std::vector<Candidate> candidates;
  double best = 0;
  for (const auto& [k, top] : maxima) {
    if (top < kSeenByParabola * highest) continue;
    candidates.push_back(top_of_peak(spectrum_, k));
    const double omega = std::fabs(candidates.back().k) * step;
    if (omega >= band_.low && omega <= band_.high) best = std::max(best, candidates.back().power);
  }
  RotationPeak strongest;
  // What thinning and interpolation may have got wrong.
  constexpr double kDoubt = 0.02;
  for (const auto& candidate : candidates) {
    if (candidate.power < (1 - kDoubt) * best) continue;
    const auto peak =
        refine_rotation(std::fabs(candidate.k) * step, candidate.k < 0 ? -1.0 : 1.0, cosine, sine);
    if (peak.strength > strongest.strength) strongest = peak;
  }
  return strongest;
}

}  // namespace qkscope
