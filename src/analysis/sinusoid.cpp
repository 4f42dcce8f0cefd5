#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

#include "analysis/frequency_search.h"
#include "analysis/phase_table.h"

namespace qkscope {
namespace {

// Sums over the rows that decide a least-squares wave: E(omega) = sum exp(-i omega t),
// E(2 omega), Y = sum of centred values times exp(-i omega t).
struct WaveSums {
  std::complex<double> once;
  std::complex<double> twice;
  std::complex<double> values;
};

// The share of the values' variance that c + a cos + b sin explains.
double explained(const WaveSums& sums, double n, double total) {
  const double c = sums.once.real();
  const double s = -sums.once.imag();
  const double cc = 0.5 * (n + sums.twice.real()) - c * c / n;
  const double ss = 0.5 * (n - sums.twice.real()) - s * s / n;
  const double cs = -0.5 * sums.twice.imag() - c * s / n;
  const double u = sums.values.real();
  const double v = -sums.values.imag();
  const double determinant = cc * ss - cs * cs;
  if (!(determinant > 1e-12 * (cc * cc + ss * ss))) return 0;
  return (u * u * ss - 2 * u * v * cs + v * v * cc) / determinant / total;
}

class WaveFit {
 public:
  WaveFit(std::span<const std::int32_t> offsets, std::int64_t length,
          std::span<const double> centred)
      : offsets_(offsets), length_(length), centred_(centred) {
    for (const double y : centred) total_ += y * y;
  }

  double total() const { return total_; }

  double r_squared(double omega) const {
    const PhaseTable phase(omega, length_);
    // Angles from the middle of the span: slow waves are then best conditioned.
    const auto back = std::polar(1.0, omega * static_cast<double>((length_ - 1) / 2));
    WaveSums sums;
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      const auto e = phase[offsets_[i]];
      sums.once += e;
      sums.twice +=
          std::complex<double>(e.real() * e.real() - e.imag() * e.imag(), 2 * e.real() * e.imag());
      sums.values += centred_[i] * e;
    }
    sums.once *= back;
    sums.twice *= back * back;
    sums.values *= back;
    return explained(sums, static_cast<double>(offsets_.size()), total_);
  }

  // Golden-section search for the highest R^2 between two frequencies around one peak.
  SinusoidFit climb(double low, double high) const {
    const double share = 1 / std::numbers::phi;
    double left = high - share * (high - low);
    double right = low + share * (high - low);
    double at_left = r_squared(left);
    double at_right = r_squared(right);
    for (int step = 0; step < 30 && high - low > 1e-9 * high; ++step) {
      if (at_left > at_right) {
        high = right;
        right = left;
        at_right = at_left;
        left = high - share * (high - low);
        at_left = r_squared(left);
      } else {
        low = left;
        left = right;
        at_left = at_right;
        right = low + share * (high - low);
        at_right = r_squared(right);
      }
    }
    return at_left > at_right ? SinusoidFit{left, at_left} : SinusoidFit{right, at_right};
  }

 private:
  std::span<const std::int32_t> offsets_;
  std::int64_t length_;
  std::span<const double> centred_;
  double total_ = 0;
};

}  // namespace

SinusoidFit FrequencySearch::best_sinusoid(std::span<const double> values) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto n = static_cast<double>(values.size());
  double mean = 0;
  for (const double y : values) mean += y / n;
  std::vector<double> centred;
  for (const double y : values) centred.push_back(y - mean);
  const WaveFit fit(offsets_, length_, centred);
  const double slowest = std::numbers::pi / 4 / static_cast<double>(length_);
  if (values.size() < 4 || !(fit.total() > 0) || slowest >= band_.high) return {kNan, kNan};
  const double low = std::max(slowest, band_.low);

  // The values and a row of ones, both real, in one transform: each is recovered from the part that
  // is symmetric, or antisymmetric, under k -> -k.
  const double scale = std::sqrt(n / fit.total());
  std::vector<double> scaled;
  for (const double y : centred) scaled.push_back(y * scale);
  Spectrum spectrum(offsets_, length_, std::numbers::pi);
  spectrum.compute(scaled, std::vector<double>(values.size(), 1.0));
  const auto of_ones = [&](std::int64_t k) {
    return (spectrum.at(k) - std::conj(spectrum.at(-k))) / std::complex<double>(0, 2);
  };
  const auto on_grid = [&](std::int64_t k) {
    const auto both = 0.5 * (spectrum.at(k) + std::conj(spectrum.at(-k)));
    return explained({of_ones(k), of_ones(2 * k), both}, n, n);
  };
  // Slow waves are nearly parabolas: single precision cannot tell them apart, so compute them.
  const double slow = 32 / static_cast<double>(length_);
  const auto first = static_cast<std::int64_t>(std::ceil(low / spectrum.step()));
  const auto last = static_cast<std::int64_t>(std::floor(band_.high / spectrum.step()));
  std::vector<std::pair<double, double>> heights = {{fit.r_squared(low), low}};
  for (std::int64_t k = first; k <= last; ++k) {
    const double omega = static_cast<double>(k) * spectrum.step();
    heights.emplace_back(omega < slow ? fit.r_squared(omega) : on_grid(k), omega);
  }
  heights.emplace_back(fit.r_squared(band_.high), band_.high);
  const double best = std::max_element(heights.begin(), heights.end())->first;
  SinusoidFit found{kNan, -1};
  for (std::size_t i = 0; i < heights.size(); ++i) {
    const double left = i > 0 ? heights[i - 1].first : -1;
    const double right = i + 1 < heights.size() ? heights[i + 1].first : -1;
    const double here = heights[i].first;
    if (here < 0.8 * best || here < left || here < right) continue;
    const auto peak = fit.climb(heights[i > 0 ? i - 1 : i].second,
                                heights[std::min(i + 1, heights.size() - 1)].second);
    if (peak.r_squared > found.r_squared) found = peak;
    const double exact = fit.r_squared(heights[i].second);
    if (exact > found.r_squared) found = {heights[i].second, exact};
  }
  return found;
}

}  // namespace qkscope
