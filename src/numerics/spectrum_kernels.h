// The loops of a spectrum that run over every row or every point of the grid.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "numerics/fft.h"
#include "numerics/spectrum.h"

namespace qkscope {

inline constexpr std::int64_t kSpreadTaps = 8;

// Adds value i, times eight taps from taps[8 phase[i]] on, to eight points from signal[start[i]]
// on.
void spread_values(std::span<const FourValues> values, const float* taps,
                   const std::uint32_t* phase, const std::uint32_t* start, FourComplex* signal);

// points[k] = gain[k] signal[fft.place(k)]; groups[g]: the largest |S|^2 of points 8 g .. 8 g + 7.
void sort_points(const Fft& fft, const FourComplex* signal, const float* gain, FourComplex* points,
                 FourFloats* groups);

// |S|^2 halfway between points[0] and points[1], from the eight around it with their weights.
FourFloats power_between(const FourComplex* points, const float* weights);

// Points [begin, end) whose power is above `least` in some signal, and places halfway after them
// where one of the two points beside is above `near` in some signal.
struct HighPowers {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  FourFloats least;
  FourFloats near;
};
// Appends them to `found`; `groups` as sort_points() leaves them.
void high_powers(const FourComplex* points, std::span<const FourFloats> groups,
                 const float* weights, const HighPowers& wanted, std::vector<HighPoint>& found);

}  // namespace qkscope
