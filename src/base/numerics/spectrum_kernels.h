// The loops of a spectrum that run over every row or every point of the grid.
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "base/numerics/fft.h"
#include "base/numerics/spectrum.h"

namespace qkscope {

// Adds value i times the twelve taps from taps[rows[i].taps] on to the three vectors from
// signal[rows[i].start] on.
void spread_values(std::span<const std::complex<double>> values, const SpreadRow* rows,
                   const FourFloats* taps, FourComplex* signal);

// What powers are multiplied with, the same for 2^shift neighbouring blocks.
struct SharedGains {
  const FourFloats* lines;  // (blocks >> shift, 4), and one more
  int shift;

  const FourFloats* of(std::int64_t block) const { return lines + (block >> shift) * 4; }
};

// largest[rests[i]] (.., 4) = the largest powers in each vector of the i-th block of four from
// `points` on. Returns the largest of all.
float largest_powers(const FourComplex* points, std::span<const std::uint32_t> rests,
                     const SharedGains& gains, float* largest);

// The blocks of a transform.
struct GridBlocks {
  const FourComplex* signal;
  const std::uint32_t* places;  // (count): the first vector of each, with a few before and behind
  std::int64_t count;
  SharedGains gains;
};

// Points whose power is above `least`, and places halfway after them where one of the two points
// beside is above `near`.
struct HighPowers {
  float least = 0;
  float near = 0;
  const float* weights = nullptr;  // of the eight points around such a place
};
// Appends them to `found`; `largest` is the largest power in every vector of every block, and of
// one more behind the last.
void high_powers(const GridBlocks& grid, const float* largest, const HighPowers& wanted,
                 std::vector<HighPoint>& found);

}  // namespace qkscope
