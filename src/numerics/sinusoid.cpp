#include "numerics/sinusoid.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "core/nan.h"
#include "numerics/phase_sums.h"
#include "numerics/phase_table.h"

namespace qkscope {
namespace {

// The share of the centred values' variance that c + a cos + b sin explains.
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
  // `centred` in the order's order.
  WaveFit(const PositionOrder& order, std::span<const double> centred)
      : order_(order), centred_(centred) {
    for (const double y : centred) total_ += y * y;
  }

  double total() const { return total_; }
  std::int64_t rows() const { return std::ssize(centred_); }

  double r_squared(double omega) const {
    WaveSums sums = wave_sums(omega, order_, centred_);
    // Angles from the middle of the span: slow waves are then best conditioned.
    const auto back = std::polar(1.0, omega * static_cast<double>((order_.length() - 1) / 2));
    sums.once *= back;
    sums.twice *= back * back;
    sums.values *= back;
    return explained(sums, static_cast<double>(centred_.size()), total_);
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
  const PositionOrder& order_;
  std::span<const double> centred_;
  double total_ = 0;
};

// The three sums on the grid of a spectrum, in single precision: the values are its first signal;
// its second is a row of ones shifted to the middle of [0, 2 highest], where both E(omega) and
// E(2 omega) lie.
class WaveGrid {
 public:
  WaveGrid(Spectrum& spectrum, const PositionOrder& order, std::span<const double> scaled,
           double highest)
      : spectrum_(spectrum), shift_(std::llround(highest / spectrum.step())) {
    std::vector<FourValues> signals(scaled.size());
    const double omega = static_cast<double>(shift_) * spectrum.step();
    const PhaseTable phase(omega, order.length());
    const auto back = std::polar(1.0, omega * spectrum.origin());
    for (std::size_t i = 0; i < scaled.size(); ++i) {
      const auto e = PhaseTable::product(phase[order.offsets()[i]], back);
      signals[i].re[0] = scaled[i];
      signals[i].re[1] = e.real();
      signals[i].im[1] = e.imag();
    }
    spectrum.compute(signals);
  }

  WaveSums at(std::int64_t k) const {
    return {spectrum_.at(k - shift_, 1), spectrum_.at(2 * k - shift_, 1), spectrum_.at(k, 0)};
  }

 private:
  const Spectrum& spectrum_;
  std::int64_t shift_;
};

// Values around their mean, in the order's order.
std::vector<double> centred_by_position(std::span<const double> values,
                                        const PositionOrder& order) {
  double mean = 0;
  for (const double y : values) mean += y / static_cast<double>(values.size());
  std::vector<double> centred(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) centred[order.places()[i]] = values[i] - mean;
  return centred;
}

struct Height {
  double r_squared;
  double omega;
};

// R^2 from `low` to `high`, on the grid and at both ends.
std::vector<Height> heights_over(const FrequencyBand& band, const WaveFit& fit,
                                 const WaveGrid& grid, double step, double slow) {
  const auto n = static_cast<double>(fit.rows());
  const auto first = static_cast<std::int64_t>(std::ceil(band.low / step));
  const auto last = static_cast<std::int64_t>(std::floor(band.high / step));
  std::vector<Height> heights = {{fit.r_squared(band.low), band.low}};
  for (std::int64_t k = first; k <= last; ++k) {
    const double omega = static_cast<double>(k) * step;
    heights.push_back({omega < slow ? fit.r_squared(omega) : explained(grid.at(k), n, n), omega});
  }
  heights.push_back({fit.r_squared(band.high), band.high});
  return heights;
}

}  // namespace

SinusoidFit best_sinusoid(std::span<const double> values, const PositionOrder& order,
                          FrequencyBand band, Spectrum& spectrum) {
  const auto length = static_cast<double>(order.length());
  auto centred = centred_by_position(values, order);
  const WaveFit fit(order, centred);
  const double slowest = std::numbers::pi / 4 / length;
  if (values.size() < 4 || !(fit.total() > 0) || slowest >= band.high) return {kNan, kNan};

  const double scale = std::sqrt(static_cast<double>(values.size()) / fit.total());
  std::vector<double> scaled;
  for (const double y : centred) scaled.push_back(y * scale);
  const WaveGrid grid(spectrum, order, scaled, band.high);
  // Slow waves are nearly parabolas: single precision cannot tell them apart, so compute them.
  const auto heights = heights_over({std::max(slowest, band.low), band.high}, fit, grid,
                                    spectrum.step(), 32 / length);
  double best = 0;
  for (const auto& height : heights) best = std::max(best, height.r_squared);
  SinusoidFit found{kNan, -1};
  for (std::size_t i = 0; i < heights.size(); ++i) {
    const auto& left = heights[i > 0 ? i - 1 : i];
    const auto& right = heights[std::min(i + 1, heights.size() - 1)];
    const double here = heights[i].r_squared;
    if (here < 0.6 * best || here < left.r_squared || here < right.r_squared) continue;
    const auto peak = fit.climb(left.omega, right.omega);
    if (peak.r_squared > found.r_squared) found = peak;
    const double exact = fit.r_squared(heights[i].omega);
    if (exact > found.r_squared) found = {heights[i].omega, exact};
  }
  return found;
}

}  // namespace qkscope
