// SIMD loops of the NUFFT over rows and grid points.
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <vector>

#include "base/numerics/fft.h"
#include "base/numerics/nufft.h"

namespace qkscope {

// NUFFT spreading: adds value i times the 12 weights at taps[rows[i].taps] to the three vectors at
// signal[rows[i].start].
void spread_onto_grid(std::span<const std::complex<double>> values, const SpreadTarget* rows,
                      const FourFloats* taps, FourComplex* signal);

// Squared deconvolution gains of the NUFFT, shared by 2^shift neighbouring blocks.
struct BlockGains {
  const FourFloats* lines;  // ((blocks >> shift) + 1, 4)
  int shift;

  const FourFloats* gains_of_block(std::int64_t block) const {
    return lines + (block >> shift) * 4;
  }
};

// Stores the maximum of |S|^2, scaled by `gains`, over each of the four vectors of block i of
// `points` in largest[block_residues[i]], shape (4). Returns the overall maximum.
float find_spectral_peaks(const FourComplex* points, std::span<const std::uint32_t> block_residues,
                          const BlockGains& gains, float* largest);

// The transformed grid.
struct GridBlocks {
  const FourComplex* signal;
  const std::uint32_t* places;  // (count): first vector of each block; valid from -4 to count + 3
  std::int64_t count;
  BlockGains gains;
};

// Selects points with |S|^2 > `least`. Midpoints of grid points are evaluated only if one of the
// two grid points is above `near`.
struct PeakThresholds {
  float least = 0;
  float near = 0;
  const float* weights = nullptr;  // (8): interpolation weights of a midpoint
};
// Appends the selected points to `found`. `largest`, shape (count + 1, 4): maxima of
// find_spectral_peaks().
void find_peaks(const GridBlocks& grid, const float* largest, const PeakThresholds& wanted,
                std::vector<PeakCandidate>& found);

}  // namespace qkscope
