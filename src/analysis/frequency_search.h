// Finds the frequency at which something turns with position: over a whole band, with a grid fine
// enough that no peak falls between its points, then exactly.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/spectrum.h"

namespace qkscope {

struct FrequencyBand {
  double low = 0;  // radians per token, 0 <= low < high <= pi
  double high = 1;
};

struct RotationPeak {
  double omega = 0;     // radians per token, in the band
  double strength = 0;  // |mean(exp(i (angle - omega t)))|
  bool reversed =
      false;  // the angle falls with position: the plane's second axis points the other way
};

struct SinusoidFit {
  double omega = 0;
  double r_squared = 0;
};

// For one set of positions; reused for many signals over it. Not to be shared between threads.
class FrequencySearch {
 public:
  FrequencySearch(std::span<const std::int32_t> positions, FrequencyBand band);

  // The strongest rotation of unit vectors (cosine, sine), one per position, in either direction.
  RotationPeak strongest_rotation(std::span<const double> cosine, std::span<const double> sine);

  // Least squares of c + a cos(omega t) + b sin(omega t): the frequency with the highest R^2. A
  // wave is looked for from an eighth of a turn over the whole span upwards: a slower one cannot be
  // told from a parabola.
  SinusoidFit best_sinusoid(std::span<const double> values);

 private:
  RotationPeak refine_rotation(double omega, double sign, std::span<const double> cosine,
                               std::span<const double> sine) const;

  std::vector<std::int32_t> offsets_;  // (rows): position - smallest position
  std::int64_t length_ = 0;            // largest offset + 1
  FrequencyBand band_;
  Spectrum spectrum_;
  std::vector<float> powers_;
};

}  // namespace qkscope
