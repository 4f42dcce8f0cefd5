// Fits a wave over position by least squares.
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "base/numerics/position_order.h"
#include "base/numerics/slow_sums.h"
#include "base/numerics/spectrum.h"

namespace qkscope {

struct SinusoidFit {
  double omega = 0;      // radians per token
  double r_squared = 0;  // share of the values' variance
};

// Least squares of c + a cos(omega t) + b sin(omega t) over one set of positions. What depends on
// the positions alone is made once.
class SinusoidSearch {
 public:
  // `spectrum` covers the positions of `order` and the band, and is overwritten.
  SinusoidSearch(const PositionOrder& order, FrequencyBand band, Spectrum& spectrum);

  // The frequency with the highest R^2. A wave is looked for from an eighth of a turn over the
  // whole span upwards: a slower one cannot be told from a parabola. Values are in the order's
  // order; it and `spectrum`, which is overwritten, are those of before.
  SinusoidFit best(std::span<const double> values, const PositionOrder& order,
                   Spectrum& spectrum) const;

 private:
  // The inverse of the matrix of sums of cos cos, cos sin and sin sin around their means.
  struct Inverse {
    double cosines = 0;
    double both = 0;
    double sines = 0;
  };

  // Frequencies looked at: the band's low end, then points of the spectrum's grid.
  double omega(std::size_t i) const;
  template <typename Each>
  void for_grid(const Spectrum& spectrum, const Each& each) const;
  static Inverse inverse_of(std::complex<double> once, std::complex<double> twice, double n);
  static double explained(std::complex<double> values, const Inverse& inverse);
  // The R^2 of every frequency looked at, from the values' sums.
  std::vector<double> heights(const SlowSums& slow, const Spectrum& spectrum) const;
  double start_near(std::size_t i, std::span<const double> height) const;

  FrequencyBand band_;  // from the slowest wave on
  double step_;
  std::int64_t first_;  // on the grid
  // Frequencies to be computed: slow waves are nearly parabolas, and the spectrum is not good
  // enough to tell them apart.
  std::size_t exact_ = 0;
  std::vector<std::complex<double>> ones_;
  SlowSums slow_ones_;
  std::vector<Inverse> inverse_;
};

}  // namespace qkscope
