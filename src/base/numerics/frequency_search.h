// Finds the dominant frequency of a signal over position: first on a grid over the whole band that
// is fine enough to see every peak, then refined to full precision.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/numerics/lomb_scargle.h"
#include "base/numerics/nufft.h"
#include "base/numerics/position_order.h"

namespace qkscope {

struct RotationPeak {
  double omega = 0;       // radians per token, in the band
  double strength = 0;    // |mean(exp(i (angle - omega t)))|
  bool reversed = false;  // the angle decreases with position
};

// Searches many signals over one set of positions. Not thread-safe.
class FrequencySearch {
 public:
  FrequencySearch(std::span<const std::int32_t> positions, FrequencyBand band);

  const PositionOrder& order() const { return order_; }

  // Returns the frequency in the band, of either sign, at which the Fourier sum of the unit complex
  // numbers `units` is largest. `units` must be in the order of order().
  RotationPeak strongest_rotation(std::span<const std::complex<double>> units);
  // Returns the best least-squares sinusoid (lomb_scargle.h). `values` must be in the order of
  // order().
  SinusoidFit best_sinusoid(std::span<const double> values);

 private:
  struct Peak {
    std::int64_t half = 0;  // half grid point, of either sign
    double power = 0;
    double top = 0;  // vertex of the parabola through it and its neighbours
  };

  // Returns the local maxima of |S|^2 that are high enough to be candidates for the global maximum.
  std::vector<Peak> peaks_above_threshold() const;
  RotationPeak refine_rotation(double omega, std::span<const std::complex<double>> units) const;

  PositionOrder order_;
  FrequencyBand band_;
  Nufft spectrum_;
  std::optional<LombScargle> sinusoids_;
};

}  // namespace qkscope
