#include "base/numerics/frequency_search.h"

#include <algorithm>
#include <cmath>

namespace qkscope {
namespace {

// Thresholds relative to the highest sample of the power |S|^2 at grid points and at midpoints
// between them, with a margin for noise. If a peak lies midway between two samples, both have 0.9
// of its height, and the vertex of the parabola through the three highest samples has 0.98 of it.
constexpr double kCandidateThreshold = 0.6;
constexpr double kParabolaThreshold = 0.8;
// The midpoint of two grid points is evaluated only if |S|^2 at one of them exceeds this fraction
// of its maximum: at the grid point nearest to a peak, |S|^2 is at least 0.64 of the peak.
constexpr double kMidpointThreshold = 0.4;
// Limits the number of refined peaks: one position far from all others splits a broad peak into
// many maxima of nearly equal height.
constexpr std::size_t kMostRefinedRotations = 256;

// Returns the height of the vertex of a parabola through a local maximum and its neighbours.
double parabola_vertex_height(double left, double middle, double right) {
  const double bend = left - 2 * middle + right;
  const double slope = 0.5 * (right - left);
  return bend < 0 ? middle - 0.5 * slope * slope / bend : std::max({left, middle, right});
}

struct RefinedPeak {
  double k = 0;  // frequency in grid steps, of either sign
  double power = 0;
};

// Refines a peak of the power spectrum |S|^2 by a parabola through three values a quarter of a grid
// step apart. `half`: position of the peak, in units of half a grid step.
RefinedPeak refine_by_parabola(const Nufft& spectrum, std::int64_t half) {
  const auto power = spectrum.powers_around_half_step(half);
  const double* const highest = std::max_element(power.data() + 1, power.data() + 4);
  const double bend = highest[-1] - 2 * highest[0] + highest[1];
  const double slope = 0.5 * (highest[1] - highest[-1]);
  const double move = bend < 0 ? std::clamp(-slope / bend, -1.5, 1.5) : 0.0;
  const double quarters = to_double(highest - power.data() - 2) + move;
  const double top = highest[0] + slope * move + 0.5 * bend * move * move;
  return {0.5 * to_double(half) + 0.25 * quarters, std::max(top, *highest)};
}

// Maximises |S|^2 over [low, high] by Newton's method; where |S|^2 is convex, climbs by `step`.
double offset_of_maximum(const FourierSumTaylorSeries& sums, double low, double high, double step) {
  double move = 0;
  for (int round = 0; round < 30; ++round) {
    const auto [value, slope, bend] = sums.evaluate(move);
    const double along = std::real(std::conj(value) * slope);
    const double curve = std::norm(slope) + std::real(std::conj(value) * bend);
    const double next =
        std::clamp(move + (curve < 0 ? -along / curve : std::copysign(step, along)), low, high);
    if (std::fabs(next - move) <= 1e-9 * step) break;
    move = next;
  }
  return std::norm(sums.evaluate(move).value) > std::norm(sums.evaluate(0).value) ? move : 0;
}

}  // namespace

FrequencySearch::FrequencySearch(std::span<const std::int32_t> positions, FrequencyBand band)
    : order_(positions), band_(band), spectrum_(order_.offsets(), order_.position_extent(), band) {}

// Finds the frequency inside band_ and within one grid step of `start` that maximises |S|^2.
RotationFrequencyPeak FrequencySearch::refine_rotation_frequency(
    double start, std::span<const std::complex<double>> units) const {
  const double step = spectrum_.frequency_step();
  const double sign = start < 0 ? -1 : 1;
  const double low = std::max(band_.low, std::fabs(start) - step);
  const double high = std::min(band_.high, std::fabs(start) + step);
  const double first = std::clamp(std::fabs(start), low, high);
  // Each iteration moves to the maximum of a local Taylor series of |S|^2, but by at most `reach`.
  // The last step is at most `exact`: the error of the series is then within rounding error.
  const double reach = 0.25 * step;
  const double exact = FourierSumTaylorSeries::max_accurate_frequency_shift(order_);
  double at = sign * first;
  for (int round = 0;; ++round) {
    const auto sums = fourier_sum_taylor_series(at, order_, units);
    const double before = sign > 0 ? low - at : -high - at;
    const double behind = sign > 0 ? high - at : -low - at;
    double move = offset_of_maximum(sums, std::max(before, -reach), std::min(behind, reach), reach);
    if (round == 20) move = 0;  // at the centre the series has no truncation error
    if (std::fabs(move) <= exact) {
      const double strength = std::abs(sums.evaluate(move).value) / to_double(order_.row_count());
      return {std::clamp(std::fabs(at + move), low, high), strength, sign < 0};
    }
    at += move;
  }
}

std::vector<FrequencySearch::GridPeak> FrequencySearch::peaks_above_threshold() const {
  const auto size = spectrum_.size();
  float highest = spectrum_.max_power_in_band();
  std::vector<PeakCandidate> found;
  spectrum_.find_peaks_above(static_cast<float>(kCandidateThreshold) * highest,
                             static_cast<float>(kMidpointThreshold) * highest, found);
  for (auto& [half, power] : found) {
    if (half > size) half -= 2 * size;
    if (spectrum_.is_inside_band(half >> 1)) highest = std::max(highest, power);
  }
  const auto first = spectrum_.band_low_in_half_steps();
  const auto last = spectrum_.band_high_in_half_steps();
  std::vector<GridPeak> peaks;
  for (const auto& [half, power] : found) {
    const auto steps = std::abs(half);
    if (steps < first || steps > last ||
        !(power > static_cast<float>(kCandidateThreshold) * highest))
      continue;
    const double here = spectrum_.power_at_half_step(half);
    const double before = spectrum_.power_at_half_step(half - 1);
    const bool edge = steps == first || steps == last;
    if (!edge && here < before) continue;
    const double behind = spectrum_.power_at_half_step(half + 1);
    if (edge || here >= behind)
      peaks.push_back({half, here, parabola_vertex_height(before, here, behind)});
  }
  std::ranges::sort(peaks, [](const GridPeak& a, const GridPeak& b) { return a.half < b.half; });
  const auto same = [](const GridPeak& a, const GridPeak& b) { return a.half == b.half; };
  peaks.erase(std::unique(peaks.begin(), peaks.end(), same), peaks.end());
  return peaks;
}

RotationFrequencyPeak FrequencySearch::strongest_rotation_frequency(
    std::span<const std::complex<double>> units) {
  spectrum_.compute_spectrum(units);
  const auto peaks = peaks_above_threshold();
  const double step = spectrum_.frequency_step();
  const auto in_band = [&](double k) {
    return std::fabs(k) * step >= band_.low && std::fabs(k) * step <= band_.high;
  };
  double highest = 0;
  for (const auto& peak : peaks)
    if (in_band(0.5 * to_double(peak.half))) highest = std::max(highest, peak.power);
  std::vector<RefinedPeak> candidates;
  double best = 0;
  for (const auto& peak : peaks) {
    if (peak.top < kParabolaThreshold * highest) continue;
    candidates.push_back(refine_by_parabola(spectrum_, peak.half));
    if (in_band(candidates.back().k)) best = std::max(best, candidates.back().power);
  }
  std::ranges::sort(candidates,
                    [](const RefinedPeak& a, const RefinedPeak& b) { return a.power > b.power; });
  if (candidates.size() > kMostRefinedRotations) candidates.resize(kMostRefinedRotations);
  RotationFrequencyPeak strongest;
  // Tolerance for comparing two estimated values of |S|^2, each with a relative error of 1 % (NUFFT
  // and interpolation). Comparing an estimate with an exact value needs half the tolerance.
  constexpr double kRelativeError = 0.02;
  for (const auto& candidate : candidates) {
    const double exact = strongest.strength * to_double(order_.row_count());
    if (candidate.power <
        std::max((1 - kRelativeError) * best, (1 - kRelativeError / 2) * exact * exact))
      break;
    const auto peak = refine_rotation_frequency(candidate.k * step, units);
    if (peak.strength > strongest.strength) strongest = peak;
  }
  return strongest;
}

SinusoidFit FrequencySearch::best_sinusoid(std::span<const double> values) {
  if (!sinusoids_) sinusoids_.emplace(order_, band_, spectrum_);
  return sinusoids_->best_fit(values, order_, spectrum_);
}

}  // namespace qkscope
