#include "base/numerics/sinusoid.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/core/nan.h"
#include "base/numerics/phase_sums.h"
#include "base/numerics/phase_table.h"
#include "base/numerics/vectors.h"

namespace qkscope {
namespace {

// Sums of cos cos, cos sin and sin sin around their means, from E(omega) = sum exp(-i omega t) and
// E(2 omega).
struct WaveProducts {
  double cc;
  double cs;
  double ss;

  WaveProducts(std::complex<double> once, std::complex<double> twice, double n) {
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

struct Height {
  double r_squared = 0;  // of values whose squares sum up to their number
  double slope = 0;
};

// From the sums of values and of ones at omega, and of ones at 2 omega.
Height height_of(const PhaseSum& y, const PhaseSum& once, const PhaseSum& twice, double n) {
  const WaveProducts products(once.value, twice.value, n);
  const double determinant = products.determinant();
  if (determinant == 0) return {};
  const double u = y.value.real();
  const double v = -y.value.imag();
  const double a = (u * products.ss - v * products.cs) / determinant;
  const double b = (v * products.cc - u * products.cs) / determinant;
  // How the products change; the derivative of E(2 omega) is twice that at 2 omega.
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

// R^2 around one frequency.
class WaveSeries {
 public:
  WaveSeries(double omega, const PositionOrder& order, std::span<const std::complex<double>> values,
             std::span<const std::complex<double>> ones)
      : n_(static_cast<double>(ones.size())),
        values_(turned_sums(omega, order, values)),
        once_(turned_sums(omega, order, ones)),
        twice_(turned_sums(2 * omega, order, ones)) {}

  Height at(double move) const {
    return height_of(values_.at(move), once_.at(move), twice_.at(2 * move), n_);
  }

  // The way to the nearest top uphill, in [low, high].
  double way_up(double low, double high) const {
    const bool forward = at(0).slope > 0;
    double below = 0;
    double above = forward ? high : low;
    const auto is_below = [&](double move) { return (at(move).slope > 0) == forward; };
    if (is_below(above)) return above;
    for (int round = 0; round < 50; ++round) {
      const double middle = 0.5 * (below + above);
      (is_below(middle) ? below : above) = middle;
    }
    return 0.5 * (below + above);
  }

 private:
  double n_;
  TurnedSums values_;
  TurnedSums once_;
  TurnedSums twice_;
};

// Waves slower than this many radians over all positions are nearly parabolas: what a series leaves
// out, and what the spectrum gets wrong, would be seen in R^2.
constexpr double kSlow = 12;

// The top of R^2 uphill from `start`, in the band, for slow waves: every slope is computed where it
// is asked for.
template <typename HeightAt>
SinusoidFit climb_slowly(double start, FrequencyBand band, const HeightAt& height_at) {
  const auto from = height_at(start);
  double below = start;
  double above = from.slope > 0 ? band.high : band.low;
  double slope_below = from.slope;
  double slope_above = height_at(above).slope;
  const auto uphill = [&](double slope) { return (slope > 0) == (from.slope > 0); };
  if (uphill(slope_above)) return {above, height_at(above).r_squared};
  // Where the line between two slopes is zero; the end that stays counts half as much each time.
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

// The top of R^2 uphill from `start`, in the band.
SinusoidFit climb(double start, FrequencyBand band, const PositionOrder& order,
                  std::span<const std::complex<double>> values,
                  std::span<const std::complex<double>> ones) {
  const auto length = static_cast<double>(order.length());
  // Series reach far enough to come closer, and are exact to the last digits nearer by.
  const double reach = 0.5 / length;
  const double exact = 0.5 * TurnedSums::exact_reach(order);  // twice as far at 2 omega
  double at = start;
  for (int round = 0;; ++round) {
    const WaveSeries series(at, order, values, ones);
    const double move =
        series.way_up(std::max(band.low - at, -reach), std::min(band.high - at, reach));
    if (std::fabs(move) <= exact) return {at + move, series.at(move).r_squared};
    if (round == 20) return {at, series.at(0).r_squared};
    at += move;
  }
}

std::vector<double> around_their_mean(std::span<const double> values) {
  double mean = 0;
  for (const double y : values) mean += y / static_cast<double>(values.size());
  std::vector<double> centred(values.begin(), values.end());
  for (double& y : centred) y -= mean;
  return centred;
}

// A row of ones shifted to the middle of [0, 2 highest], where both E(omega) and E(2 omega) lie: as
// seen on the spectrum's grid, `shift` points lower.
void compute_ones(const PositionOrder& order, std::int64_t shift, Spectrum& spectrum) {
  const double omega = static_cast<double>(shift) * spectrum.step();
  const PhaseTable phase(omega, order.length());
  const auto back = std::polar(1.0, omega * spectrum.origin());
  std::vector<std::complex<double>> signal;
  signal.reserve(static_cast<std::size_t>(order.rows()));
  for (const auto offset : order.offsets())
    signal.push_back(PhaseTable::product(phase[offset], back));
  spectrum.compute(signal);
}

}  // namespace

// Calls each(i, k) for all frequencies that are taken from the grid, in the order that suits it.
template <typename Each>
void SinusoidSearch::for_grid(const Spectrum& spectrum, const Each& each) const {
  const auto end = std::min(inverse_.size(), exact_ + spectrum.stride());
  for (std::size_t start = exact_; start < end; ++start)
    for (std::size_t i = start; i < inverse_.size(); i += spectrum.stride())
      each(i, first_ + static_cast<std::int64_t>(i) - 1);
}

SinusoidSearch::SinusoidSearch(const PositionOrder& order, FrequencyBand band, Spectrum& spectrum)
    : band_{std::max(std::numbers::pi / 4 / static_cast<double>(order.length()), band.low),
            band.high},
      step_(spectrum.step()),
      first_(static_cast<std::int64_t>(std::ceil(band_.low / step_))),
      ones_(static_cast<std::size_t>(order.rows()), 1.0),
      slow_ones_(order, std::vector<double>(ones_.size(), 1.0)) {
  const auto last = static_cast<std::int64_t>(std::floor(band_.high / step_));
  const double slow = kSlow / static_cast<double>(order.length());
  const auto n = static_cast<double>(order.rows());
  const auto shift = std::llround(band_.high / step_);
  compute_ones(order, shift, spectrum);
  inverse_.resize(static_cast<std::size_t>(std::max<std::int64_t>(0, last - first_ + 1)) + 1);
  exact_ = 1;
  while (exact_ < inverse_.size() && omega(exact_) < slow) ++exact_;
  for (std::size_t i = 0; i < exact_; ++i)
    inverse_[i] = inverse_of(slow_ones_.at(omega(i)).value, slow_ones_.at(2 * omega(i)).value, n);
  for_grid(spectrum, [&](std::size_t i, std::int64_t k) {
    inverse_[i] = inverse_of(spectrum.at(k - shift), spectrum.at(2 * k - shift), n);
  });
}

double SinusoidSearch::omega(std::size_t i) const {
  return i == 0 ? band_.low
                : static_cast<double>(first_ + static_cast<std::int64_t>(i) - 1) * step_;
}

SinusoidSearch::Inverse SinusoidSearch::inverse_of(std::complex<double> once,
                                                   std::complex<double> twice, double n) {
  const WaveProducts products(once, twice, n);
  const double determinant = products.determinant();
  if (determinant == 0) return {};
  const double inverse = 1 / determinant;
  return {inverse * products.ss, -inverse * products.cs, inverse * products.cc};
}

// By the best wave of a frequency, from the values' sum there.
double SinusoidSearch::explained(std::complex<double> values, const Inverse& inverse) {
  const double u = values.real();
  const double v = -values.imag();
  return u * u * inverse.cosines + 2 * u * v * inverse.both + v * v * inverse.sines;
}

std::vector<double> SinusoidSearch::heights(const SlowSums& slow, const Spectrum& spectrum) const {
  std::vector<double> all(inverse_.size());
  for (std::size_t i = 0; i < exact_; ++i) all[i] = explained(slow.at(omega(i)).value, inverse_[i]);
  for_grid(spectrum,
           [&](std::size_t i, std::int64_t k) { all[i] = explained(spectrum.at(k), inverse_[i]); });
  return all;
}

// The top of a parabola through a height and those beside it.
double SinusoidSearch::start_near(std::size_t i, std::span<const double> height) const {
  if (i == 0 || i + 1 == height.size()) return omega(i);
  const double before = omega(i) - omega(i - 1);
  const double behind = omega(i + 1) - omega(i);
  const double falls = (height[i] - height[i - 1]) / before;
  const double rises = (height[i + 1] - height[i]) / behind;
  const double bend = (rises - falls) / (before + behind);
  const double slope = falls + bend * before;
  return bend < 0 ? omega(i) + std::clamp(-0.5 * slope / bend, -before, behind) : omega(i);
}

SinusoidFit SinusoidSearch::best(std::span<const double> values, const PositionOrder& order,
                                 Spectrum& spectrum) const {
  auto centred = around_their_mean(values);
  const double total = dot(centred, centred);
  if (values.size() < 4 || !(total > 0) || band_.low >= band_.high) return {kNan, kNan};
  const double scale = std::sqrt(static_cast<double>(values.size()) / total);
  for (double& y : centred) y *= scale;
  const std::vector<std::complex<double>> scaled(centred.begin(), centred.end());
  const SlowSums slow(order, centred);
  spectrum.compute(scaled);
  const auto height = heights(slow, spectrum);
  // A top halfway between two points keeps 0.64 of its height on them.
  constexpr double kSeen = 0.6;
  const double enough = kSeen * *std::max_element(height.begin(), height.end());
  if (!(enough > 0)) return {kNan, kNan};  // too few positions for any wave
  std::vector<std::size_t> tops;
  for (std::size_t i = 0; i < height.size(); ++i)
    if (height[i] >= enough && height[i] >= height[i > 0 ? i - 1 : i] &&
        height[i] >= height[std::min(i + 1, height.size() - 1)])
      tops.push_back(i);
  std::sort(tops.begin(), tops.end(),
            [&](std::size_t i, std::size_t j) { return height[i] > height[j]; });
  const auto slow_height = [&](double at) {
    return height_of(slow.at(at), slow_ones_.at(at), slow_ones_.at(2 * at),
                     static_cast<double>(values.size()));
  };
  SinusoidFit found{kNan, -1};
  for (const auto i : tops) {
    if (height[i] < kSeen * found.r_squared) break;
    const FrequencyBand beside{omega(i > 0 ? i - 1 : i),
                               i + 1 < height.size() ? omega(i + 1) : band_.high};
    const double start = start_near(i, height);
    const auto peak = beside.low * static_cast<double>(order.length()) < kSlow
                          ? climb_slowly(start, beside, slow_height)
                          : climb(start, beside, order, scaled, ones_);
    if (peak.r_squared > found.r_squared) found = peak;
  }
  return found;
}

}  // namespace qkscope
