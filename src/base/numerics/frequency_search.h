// Finds the dominant frequency of a signal over position: first on a grid over the whole band that
// is fine enough to see every peak, then refined to full precision. Rotations maximise a Fourier
// sum; sinusoids maximise the Lomb-Scargle periodogram with a floating mean, the least-squares fit
// of one sinusoid over position.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/numerics/nufft.h"
#include "base/numerics/phase_sums.h"

namespace qkscope {

struct SinusoidFit {
  double omega = 0;      // radians per token
  double r_squared = 0;  // fraction of the variance explained
};

// Fits c + a cos(omega t) + b sin(omega t) for one set of positions and many value vectors. The
// constructor computes everything that depends only on the positions.
class LombScargle {
 public:
  // `spectrum` must be built for the offsets of `order` and for `band`; its values are overwritten.
  LombScargle(const SortedPositions& order, FrequencyBand band, Nufft& spectrum);

  // Returns the frequency in the band with the largest R^2. The lowest frequency is an eighth of a
  // period over all positions; slower sinusoids are indistinguishable from a parabola. `values`
  // must be sorted like `order`; `order` and `spectrum` must be those passed to the constructor.
  SinusoidFit best_fit(std::span<const double> values, const SortedPositions& order,
                       Nufft& spectrum) const;

 private:
  struct InverseNormalMatrix {
    double cosines = 0;
    double both = 0;
    double sines = 0;
  };

  // Returns frequency i of the search, in radians per token: the low end of the band for i = 0,
  // then the grid points of the NUFFT.
  double omega(std::size_t i) const {
    return i == 0 ? band_.low : to_double(grid_index(i)) * step_;
  }
  std::int64_t grid_index(std::size_t i) const { return first_ + static_cast<std::int64_t>(i) - 1; }
  static InverseNormalMatrix invert_normal_matrix(std::complex<double> once,
                                                  std::complex<double> twice, double n);
  static double explained_sum_of_squares(std::complex<double> values,
                                         const InverseNormalMatrix& inverse);
  // Returns n R^2 of the best-fitting sinusoid (n values, sum y^2 = n) at each searched frequency.
  std::vector<double> periodogram(const LowFrequencySums& slow, const Nufft& spectrum) const;
  double parabola_vertex(std::size_t i, std::span<const double> height) const;

  FrequencyBand band_;  // without frequencies too low to be fitted
  double step_;
  std::int64_t first_;  // first grid point of the band
  // Number of lowest frequencies computed in float64: slow sinusoids resemble parabolas, and the
  // single-precision NUFFT cannot tell the two apart.
  std::size_t exact_ = 0;
  std::vector<std::complex<double>> ones_;
  LowFrequencySums exact_ones_;
  std::vector<InverseNormalMatrix> inverse_;
};

struct RotationFrequencyPeak {
  double omega = 0;       // radians per token, in the band
  double strength = 0;    // |mean(exp(i (angle - omega t)))|
  bool reversed = false;  // the angle decreases with position
};

// Finds the dominant frequency of each of many signals that share positions. Not thread-safe.
class FrequencySearch {
 public:
  FrequencySearch(std::span<const std::int32_t> positions, FrequencyBand band);

  const SortedPositions& sorted_positions() const { return order_; }

  // Returns the positive or negative frequency, with magnitude in the band, at which the Fourier
  // sum of the unit complex numbers `units` (in the order of sorted_positions()) is largest.
  RotationFrequencyPeak strongest_rotation_frequency(std::span<const std::complex<double>> units);
  // Fits the best sinusoid (LombScargle). `values` must be in the order of sorted_positions().
  SinusoidFit best_sinusoid(std::span<const double> values);

 private:
  struct GridPeak {
    std::int64_t half = 0;  // frequency in half grid steps, of either sign
    double power = 0;
    double top = 0;  // vertex of the parabola through it and its neighbours
  };

  // Returns the local maxima of |S|^2 that are high enough to be candidates for the global maximum.
  std::vector<GridPeak> peaks_above_threshold() const;
  RotationFrequencyPeak refine_rotation_frequency(
      double omega, std::span<const std::complex<double>> units) const;

  SortedPositions order_;
  FrequencyBand band_;
  Nufft spectrum_;
  std::optional<LombScargle> sinusoids_;
};

}  // namespace qkscope
