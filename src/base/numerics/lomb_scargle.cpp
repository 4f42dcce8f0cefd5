// Lomb-Scargle periodogram with a floating mean (Zechmeister and Kuerster 2009). With
// E(omega) = sum exp(-i omega t) and Y(omega) = sum y exp(-i omega t) of centred values, the normal
// matrix of cos and sin follows from E(omega) and E(2 omega), and R^2 from the matrix and Y(omega).
// A NUFFT in float32 evaluates E and Y on a frequency grid fine enough to see every peak. Grid
// peaks with at least 0.6 times the highest R^2 are refined in float64 by a Taylor series of E and
// Y around the grid frequency (phase_sums.h).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/core/numbers.h"
#include "base/numerics/frequency_search.h"
#include "base/numerics/matrix.h"
#include "base/numerics/phase_sums.h"

namespace qkscope {
namespace {

// Normal matrix of the least-squares fit of cos(omega t) and sin(omega t), both centred, computed
// from E(omega) and E(2 omega), where E(omega) = sum exp(-i omega t).
struct NormalMatrix {
  double cc;
  double cs;
  double ss;

  NormalMatrix(std::complex<double> once, std::complex<double> twice, double n) {
    const double c = once.real();
    const double s = -once.imag();
    const double share = 1 / n;
    cc = 0.5 * (n + twice.real()) - c * c * share;
    cs = -0.5 * twice.imag() - c * s * share;
    ss = 0.5 * (n - twice.real()) - s * s * share;
  }
  double determinant() const {
    const double value = cc * ss - cs * cs;
    return value > 1e-12 * (cc * cc + ss * ss) ? value : 0;
  }
};

struct PeriodogramValue {
  double r_squared = 0;  // for values normalised to sum y^2 = n
  double slope = 0;
};

// Computes R^2 of the sinusoid fit and its derivative with respect to omega. `y`, `once`, `twice`:
// the Fourier sums Y(omega), E(omega) and E(2 omega), which are defined at the top of this file.
PeriodogramValue periodogram_value(const FourierSum& y, const FourierSum& once,
                                   const FourierSum& twice, double n) {
  const NormalMatrix products(once.value, twice.value, n);
  const double determinant = products.determinant();
  if (determinant == 0) return {};
  const double u = y.value.real();
  const double v = -y.value.imag();
  const double a = (u * products.ss - v * products.cs) / determinant;
  const double b = (v * products.cc - u * products.cs) / determinant;
  // Derivatives of the elements of NormalMatrix. Chain rule: d/domega E(2 omega) = 2 E'(2 omega).
  const double c = once.value.real();
  const double s = -once.value.imag();
  const double dc = once.slope.real();
  const double ds = -once.slope.imag();
  const double cc = twice.slope.real() - 2 * c * dc / n;
  const double cs = -twice.slope.imag() - (c * ds + dc * s) / n;
  const double ss = -twice.slope.real() - 2 * s * ds / n;
  const double gain = 2 * (a * y.slope.real() - b * y.slope.imag());
  return {(u * a + v * b) / n, (gain - a * a * cc - 2 * a * b * cs - b * b * ss) / n};
}

// R^2 of the sinusoid fit near one frequency, from Taylor series of the Fourier sums.
class PeriodogramTaylorSeries {
 public:
  PeriodogramTaylorSeries(double omega, const SortedPositions& order,
                          std::span<const std::complex<double>> values,
                          std::span<const std::complex<double>> ones)
      : n_(to_double(ones.size())),
        values_(fourier_sum_taylor_series(omega, order, values)),
        once_(fourier_sum_taylor_series(omega, order, ones)),
        twice_(fourier_sum_taylor_series(2 * omega, order, ones)) {}

  PeriodogramValue value_at(double move) const {
    return periodogram_value(values_.evaluate(move), once_.evaluate(move),
                             twice_.evaluate(2 * move), n_);
  }

  // Returns the offset in [low, high] of the local maximum of R^2 that is uphill from offset 0, by
  // bisection on the derivative.
  double offset_of_maximum(double low, double high) const {
    const bool forward = value_at(0).slope > 0;
    double below = 0;
    double above = forward ? high : low;
    const auto is_below = [&](double move) { return (value_at(move).slope > 0) == forward; };
    if (is_below(above)) return above;
    for (int round = 0; round < 50; ++round) {
      const double middle = 0.5 * (below + above);
      (is_below(middle) ? below : above) = middle;
    }
    return 0.5 * (below + above);
  }

 private:
  double n_;
  FourierSumTaylorSeries values_;
  FourierSumTaylorSeries once_;
  FourierSumTaylorSeries twice_;
};

// Below this frequency, in radians over the whole range of positions, errors of the Taylor series
// and of the NUFFT would be visible in R^2, so exact sums are used.
constexpr double kLowFrequency = 12;

// Bounds the run time: one position far from all others splits a broad peak into many local maxima,
// whose number grows with the range of the positions.
constexpr std::size_t kMostRefinedPeaks = 1000;

// Climbs from `start` to the nearest local maximum of R^2 in `band`, by the Illinois variant of
// regula falsi on the derivative. Low frequencies require exact sums, so no Taylor series is used.
template <typename HeightAt>
SinusoidFit refine_low_frequency(double start, FrequencyBand band, const HeightAt& height_at) {
  const auto from = height_at(start);
  double below = start;
  double above = from.slope > 0 ? band.high : band.low;
  double slope_below = from.slope;
  double slope_above = height_at(above).slope;
  const auto uphill = [&](double slope) { return (slope > 0) == (from.slope > 0); };
  if (uphill(slope_above)) return {above, height_at(above).r_squared};
  double at = start;
  for (int round = 0; round < 60; ++round) {
    at = below - slope_below * (above - below) / (slope_above - slope_below);
    const auto here = height_at(at);
    if (here.slope == 0 || std::fabs(above - below) <= 1e-12 * at) break;
    const double moved = std::fabs(at - (uphill(here.slope) ? below : above));
    if (uphill(here.slope)) {
      below = at;
      slope_below = here.slope;
      slope_above *= 0.5;
    } else {
      above = at;
      slope_above = here.slope;
      slope_below *= 0.5;
    }
    if (moved <= 1e-13 * at) break;
  }
  return {at, height_at(at).r_squared};
}

// Climbs from `start` to a local maximum of R^2 in `band`, using local Taylor series.
SinusoidFit refine_peak(double start, FrequencyBand band, const SortedPositions& order,
                        std::span<const std::complex<double>> values,
                        std::span<const std::complex<double>> ones) {
  // Each iteration moves to the maximum of a local Taylor series of R^2, but by at most `reach`.
  // The last step is at most `exact`: the error of the series is then within rounding error.
  const double reach = 0.5 / to_double(order.position_extent());
  // Half the maximum: a step d in omega shifts the series of sum exp(-2 i omega t) by 2 d.
  const double exact = 0.5 * FourierSumTaylorSeries::max_accurate_frequency_shift(order);
  double at = start;
  for (int round = 0;; ++round) {
    const PeriodogramTaylorSeries series(at, order, values, ones);
    const double move =
        series.offset_of_maximum(std::max(band.low - at, -reach), std::min(band.high - at, reach));
    if (std::fabs(move) <= exact) return {at + move, series.value_at(move).r_squared};
    if (round == 20) return {at, series.value_at(0).r_squared};
    at += move;
  }
}

std::vector<double> centred_copy(std::span<const double> values) {
  double mean = 0;
  for (const double y : values) mean += y / to_double(values.size());
  std::vector<double> centred(values.begin(), values.end());
  for (double& y : centred) y -= mean;
  return centred;
}

// Computes E(omega) = sum exp(-i omega t) on [0, 2 band.high] by NUFFT. Grid point k of `spectrum`
// holds E at point k + shift, because the grid covers only -band.high to band.high.
void compute_spectral_window(const SortedPositions& order, std::int64_t shift, Nufft& spectrum) {
  const double omega = to_double(shift) * spectrum.frequency_step();
  const PhaseTable phase(omega, order.position_extent());
  const auto back = std::polar(1.0, omega * spectrum.phase_origin());
  std::vector<std::complex<double>> signal;
  signal.reserve(as_index(order.row_count()));
  for (const auto offset : order.offsets())
    signal.push_back(PhaseTable::complex_product(phase[offset], back));
  spectrum.compute_spectrum(signal);
}

}  // namespace

LombScargle::LombScargle(const SortedPositions& order, FrequencyBand band, Nufft& spectrum)
    : band_{std::max(std::numbers::pi / 4 / to_double(order.position_extent()), band.low),
            band.high},
      step_(spectrum.frequency_step()),
      first_(static_cast<std::int64_t>(std::ceil(band_.low / step_))),
      ones_(as_index(order.row_count()), 1.0),
      exact_ones_(order, std::vector<double>(ones_.size(), 1.0)) {
  const auto last = static_cast<std::int64_t>(std::floor(band_.high / step_));
  const double slow = kLowFrequency / to_double(order.position_extent());
  const auto n = to_double(order.row_count());
  const auto shift = std::llround(band_.high / step_);
  compute_spectral_window(order, shift, spectrum);
  inverse_.resize(as_index(std::max<std::int64_t>(0, last - first_ + 1)) + 1);
  exact_ = 1;
  while (exact_ < inverse_.size() && omega(exact_) < slow) ++exact_;
  for (std::size_t i = 0; i < exact_; ++i)
    inverse_[i] = invert_normal_matrix(exact_ones_.evaluate(omega(i)).value,
                                       exact_ones_.evaluate(2 * omega(i)).value, n);
  for (std::size_t i = exact_; i < inverse_.size(); ++i)
    inverse_[i] = invert_normal_matrix(spectrum.value_at_grid_point(grid_index(i) - shift),
                                       spectrum.value_at_grid_point(2 * grid_index(i) - shift), n);
}

LombScargle::InverseNormalMatrix LombScargle::invert_normal_matrix(std::complex<double> once,
                                                                   std::complex<double> twice,
                                                                   double n) {
  const NormalMatrix products(once, twice, n);
  const double determinant = products.determinant();
  if (determinant == 0) return {};
  const double inverse = 1 / determinant;
  return {inverse * products.ss, -inverse * products.cs, inverse * products.cc};
}

// Returns the sum of squares that a sinusoid explains, from Y(omega) = sum y exp(-i omega t).
double LombScargle::explained_sum_of_squares(std::complex<double> values,
                                             const InverseNormalMatrix& inverse) {
  const double u = values.real();
  const double v = -values.imag();
  return u * u * inverse.cosines + 2 * u * v * inverse.both + v * v * inverse.sines;
}

std::vector<double> LombScargle::periodogram(const LowFrequencySums& slow,
                                             const Nufft& spectrum) const {
  std::vector<double> all(inverse_.size());
  for (std::size_t i = 0; i < exact_; ++i)
    all[i] = explained_sum_of_squares(slow.evaluate(omega(i)).value, inverse_[i]);
  for (std::size_t i = exact_; i < inverse_.size(); ++i)
    all[i] = explained_sum_of_squares(spectrum.value_at_grid_point(grid_index(i)), inverse_[i]);
  return all;
}

// Returns the frequency at the vertex of a parabola through periodogram values i - 1, i and i + 1.
double LombScargle::parabola_vertex(std::size_t i, std::span<const double> height) const {
  if (i == 0 || i + 1 == height.size()) return omega(i);
  const double before = omega(i) - omega(i - 1);
  const double behind = omega(i + 1) - omega(i);
  const double falls = (height[i] - height[i - 1]) / before;
  const double rises = (height[i + 1] - height[i]) / behind;
  const double bend = (rises - falls) / (before + behind);
  const double slope = falls + bend * before;
  return bend < 0 ? omega(i) + std::clamp(-0.5 * slope / bend, -before, behind) : omega(i);
}

SinusoidFit LombScargle::best_fit(std::span<const double> values, const SortedPositions& order,
                                  Nufft& spectrum) const {
  auto centred = centred_copy(values);
  const double total = dot(centred, centred);
  if (values.size() < 4 || !(total > 0) || band_.low >= band_.high) return {kNan, kNan};
  const auto count = to_double(values.size());
  const double scale = std::sqrt(count / total);
  for (double& y : centred) y *= scale;
  const std::vector<std::complex<double>> scaled(centred.begin(), centred.end());
  const LowFrequencySums slow(order, centred);
  spectrum.compute_spectrum(scaled);
  const auto height = periodogram(slow, spectrum);
  // If a peak lies midway between two grid points, R^2 at these points is 0.64 of the peak.
  constexpr double kPeakThreshold = 0.6;
  const double enough = kPeakThreshold * *std::ranges::max_element(height);
  if (!(enough > 0)) return {kNan, kNan};  // too few positions for a fit
  std::vector<std::size_t> peaks;
  for (std::size_t i = 0; i < height.size(); ++i)
    if (height[i] >= enough && height[i] >= height[i > 0 ? i - 1 : i] &&
        height[i] >= height[std::min(i + 1, height.size() - 1)])
      peaks.push_back(i);
  std::ranges::sort(peaks, [&](std::size_t i, std::size_t j) { return height[i] > height[j]; });
  if (peaks.size() > kMostRefinedPeaks) peaks.resize(kMostRefinedPeaks);
  const auto exact_value = [&](double at) {
    return periodogram_value(slow.evaluate(at), exact_ones_.evaluate(at),
                             exact_ones_.evaluate(2 * at), count);
  };
  SinusoidFit found{kNan, -1};
  for (const auto i : peaks) {
    if (height[i] < kPeakThreshold * count * found.r_squared) break;
    const FrequencyBand beside{omega(i > 0 ? i - 1 : i),
                               i + 1 < height.size() ? omega(i + 1) : band_.high};
    const double start = parabola_vertex(i, height);
    const auto peak = beside.low * to_double(order.position_extent()) < kLowFrequency
                          ? refine_low_frequency(start, beside, exact_value)
                          : refine_peak(start, beside, order, scaled, ones_);
    if (peak.r_squared > found.r_squared) found = peak;
  }
  return found;
}

}  // namespace qkscope
