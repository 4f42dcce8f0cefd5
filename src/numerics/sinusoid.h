// Fits a wave over position by least squares.
#pragma once

#include <span>

#include "numerics/position_order.h"
#include "numerics/spectrum.h"

namespace qkscope {

struct SinusoidFit {
  double omega = 0;      // radians per token
  double r_squared = 0;  // share of the values' variance
};

// Least squares of c + a cos(omega t) + b sin(omega t): the frequency with the highest R^2. A wave
// is looked for from an eighth of a turn over the whole span upwards: a slower one cannot be told
// from a parabola. Values are in the order of the positions given to `order`; `spectrum` covers the
// same positions and is overwritten.
SinusoidFit best_sinusoid(std::span<const double> values, const PositionOrder& order,
                          FrequencyBand band, Spectrum& spectrum);

}  // namespace qkscope
