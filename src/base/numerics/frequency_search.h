// Finds the frequency at which something turns with position: over a whole band, with a grid fine
// enough that no peak falls between its points, then exactly.
#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/numerics/position_order.h"
#include "base/numerics/sinusoid.h"
#include "base/numerics/spectrum.h"

namespace qkscope {

struct RotationPeak {
  double omega = 0;     // radians per token, in the band
  double strength = 0;  // |mean(exp(i (angle - omega t)))|
  // The angle falls with position: the plane's second axis points the other way.
  bool reversed = false;
};

// For one set of positions; reused for many signals over it. Not to be shared between threads.
class FrequencySearch {
 public:
  FrequencySearch(std::span<const std::int32_t> positions, FrequencyBand band);

  const PositionOrder& order() const { return order_; }

  // Both take rows in order().
  // The strongest rotation of unit vectors, in either direction.
  RotationPeak strongest_rotation(std::span<const std::complex<double>> units);
  SinusoidFit best_sinusoid(std::span<const double> values);

 private:
  struct Peak {
    std::int64_t half = 0;  // grid point, of either sign
    double power = 0;
    double top = 0;  // of a parabola through it and its neighbours
  };

  // Those that may be next to the strongest rotation.
  std::vector<Peak> high_points() const;
  RotationPeak refine_rotation(double omega, std::span<const std::complex<double>> units) const;

  PositionOrder order_;
  FrequencyBand band_;
  Spectrum spectrum_;
  std::optional<SinusoidSearch> sinusoids_;
};

}  // namespace qkscope
