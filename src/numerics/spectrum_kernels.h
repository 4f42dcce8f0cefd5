// The loops of a spectrum that run over every row or every point of the grid.
#pragma once

#include <cstdint>
#include <span>

#include "numerics/fft.h"
#include "numerics/spectrum.h"

namespace qkscope {

inline constexpr std::int64_t kSpreadTaps = 8;

// Adds value i, times eight taps from taps[8 phase[i]] on, to eight points from signal[start[i]]
// on.
void spread_values(std::span<const FourValues> values, const float* taps,
                   const std::uint32_t* phase, const std::uint32_t* start, FourComplex* signal);

// points[k] = gain[k] signal[fft.place(k)].
void sort_points(const Fft& fft, const FourComplex* signal, const float* gain, FourComplex* points);

// |S|^2 halfway between points[0] and points[1], from the eight around it with their weights.
FourFloats power_between(const FourComplex* points, const float* weights);

// groups[g]: the largest |S|^2 of points 8 g .. 8 g + 7 and halfway after each of them.
void group_powers(const FourComplex* points, const float* weights, std::span<FourFloats> groups);

}  // namespace qkscope
