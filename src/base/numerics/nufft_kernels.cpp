#include "base/numerics/nufft_kernels.h"

#include <memory>

#include "base/core/cpu_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/numerics/nufft_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Four = hn::CappedTag<float, 4>;
using Vector = hn::Vec<Four>;

HWY_INLINE const float* floats(const FourComplex* at) {
  return reinterpret_cast<const float*>(at);
}
HWY_INLINE float* floats(FourComplex* at) {
  return reinterpret_cast<float*>(at);
}

HWY_INLINE Vector load_four_floats(const FourFloats& values) {
  return hn::Load(Four(), reinterpret_cast<const float*>(&values));
}

HWY_INLINE void spread_row(const std::complex<double>& value, const SpreadTarget& row,
                           const FourFloats* taps, FourComplex* signal) {
  const Vector re = hn::Set(Four(), static_cast<float>(value.real()));
  const Vector im = hn::Set(Four(), static_cast<float>(value.imag()));
  const FourFloats* const weights = taps + row.taps;
  float* const to = floats(signal + row.start);
#pragma GCC unroll 3
  for (std::int64_t v = 0; v < 3; ++v) {
    const Vector by = load_four_floats(weights[v]);
    hn::Store(hn::MulAdd(by, re, hn::Load(Four(), to + 8 * v)), Four(), to + 8 * v);
    hn::Store(hn::MulAdd(by, im, hn::Load(Four(), to + 8 * v + 4)), Four(), to + 8 * v + 4);
  }
}

// Rows are sorted by position, so consecutive rows write the same points. Interleaving four
// quarters of the rows avoids store-to-load stalls.
void spread_onto_grid_kernel(std::span<const std::complex<double>> values, const SpreadTarget* rows,
                             const FourFloats* taps, FourComplex* signal) {
  const std::size_t quarter = values.size() / 4;
  for (std::size_t i = 0; i < quarter; ++i)
#pragma GCC unroll 4
    for (std::size_t j = i; j < 4 * quarter; j += quarter)
      spread_row(values[j], rows[j], taps, signal);
  for (std::size_t i = 4 * quarter; i < values.size(); ++i)
    spread_row(values[i], rows[i], taps, signal);
}

HWY_INLINE Vector squared_magnitude(Vector re, Vector im) {
  return hn::MulAdd(re, re, hn::Mul(im, im));
}

HWY_INLINE Vector powers_at_points(const FourComplex& four) {
  const float* const at = floats(&four);
  return squared_magnitude(hn::Load(Four(), at), hn::Load(Four(), at + 4));
}

// Returns the maxima of the four vectors: the maximum of vector i in lane i.
HWY_INLINE Vector largest_of_each(Vector a, Vector b, Vector c, Vector d) {
  const Four f;
  const Vector ac = hn::Max(hn::InterleaveLower(f, a, c), hn::InterleaveUpper(f, a, c));
  const Vector bd = hn::Max(hn::InterleaveLower(f, b, d), hn::InterleaveUpper(f, b, d));
  return hn::Max(hn::InterleaveLower(f, ac, bd), hn::InterleaveUpper(f, ac, bd));
}

float find_spectral_peaks_kernel(const FourComplex* points,
                                 std::span<const std::uint32_t> block_residues,
                                 const BlockGains& gains, float* largest) {
  Vector highest = hn::Zero(Four());
  for (std::size_t block = 0; block < block_residues.size(); ++block, points += 4) {
    const FourFloats* const gain = gains.gains_of_block(block_residues[block]);
    Vector power[4];
#pragma GCC unroll 4
    for (std::size_t v = 0; v < 4; ++v)
      power[v] = hn::Mul(powers_at_points(points[v]), load_four_floats(gain[v]));
    const Vector here = largest_of_each(power[0], power[1], power[2], power[3]);
    hn::Store(here, Four(), largest + 4 * block_residues[block]);
    highest = hn::Max(highest, here);
  }
  return hn::GetLane(hn::MaxOfLanes(Four(), highest));
}

HWY_INLINE bool any_above(Vector power, Vector limit) {
  return !hn::AllFalse(Four(), hn::Gt(power, limit));
}

// Returns |S|^2 without gains, halfway from each of the four grid points in vector `v` to the next.
HWY_INLINE Vector powers_at_midpoints(const GridBlocks& grid, const std::uint32_t* places,
                                      std::size_t v, const float* weights) {
  Vector re = hn::Zero(Four());
  Vector im = hn::Zero(Four());
#pragma GCC unroll 8
  for (std::ptrdiff_t j = 0; j < 8; ++j) {
    const float* const from = floats(grid.signal + places[j - 3] + v);
    const Vector by = hn::Set(Four(), weights[j]);
    re = hn::MulAdd(by, hn::Load(Four(), from), re);
    im = hn::MulAdd(by, hn::Load(Four(), from + 4), im);
  }
  return squared_magnitude(re, im);
}

// Appends the lanes with a power above `least`. `half`: frequency of the first lane in half grid
// steps; lanes are `apart` half steps apart. Not inlined, to keep the hot loop short.
HWY_NOINLINE void append_above(std::int64_t half, std::int64_t apart, Vector power, float least,
                               std::vector<PeakCandidate>& found) {
  float powers[4];
  hn::StoreU(power, Four(), powers);
  for (int i = 0; i < 4; ++i)
    if (powers[i] > least) found.push_back({half + i * apart, powers[i]});
}

// Lists the vectors with a maximum above `near` in their own block or in the next one; returns the
// number listed. Branch-free: every index is written and the count advances only for hits, so
// `list` needs room for one extra entry.
std::size_t list_vectors_above(const float* largest, std::int64_t vectors, float near,
                               std::uint32_t* list) {
  std::size_t count = 0;
  for (std::int64_t i = 0; i < vectors; i += 4) {
    float highest[4];
    hn::StoreU(hn::Max(hn::Load(Four(), largest + i), hn::Load(Four(), largest + i + 4)), Four(),
               highest);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      list[count] = static_cast<std::uint32_t>(i + v);
      count += highest[v] > near ? 1 : 0;
    }
  }
  return count;
}

void find_peaks_kernel(const GridBlocks& grid, const float* largest, const PeakThresholds& wanted,
                       std::vector<PeakCandidate>& found) {
  const Vector least = hn::Set(Four(), wanted.least);
  const auto list = std::make_unique_for_overwrite<std::uint32_t[]>(as_index(4 * grid.count + 1));
  const auto count = list_vectors_above(largest, 4 * grid.count, wanted.near, list.get());
  for (const auto vector : std::span(list.get(), count)) {
    const std::int64_t block = vector / 4;
    const std::size_t v = vector % 4;
    const std::uint32_t* const places = grid.places + block;
    const Vector gain = load_four_floats(grid.gains.gains_of_block(block)[v]);
    const Vector gain_after = load_four_floats(grid.gains.gains_of_block(block + 1)[v]);
    const Vector here = hn::Mul(powers_at_points(grid.signal[places[0] + v]), gain);
    const Vector mean = hn::Mul(hn::Set(Four(), 0.5F), hn::Add(gain, gain_after));
    const Vector between = hn::Mul(powers_at_midpoints(grid, places, v, wanted.weights), mean);
    if (!any_above(hn::Max(here, between), least)) continue;
    const auto half = 2 * (block + 4 * static_cast<std::int64_t>(v) * grid.count);
    append_above(half, 2 * grid.count, here, wanted.least, found);
    append_above(half + 1, 2 * grid.count, between, wanted.least, found);
  }
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {

QKSCOPE_EXPORT_KERNEL(void, spread_onto_grid,
                      (std::span<const std::complex<double>> values, const SpreadTarget* rows,
                       const FourFloats* taps, FourComplex* signal),
                      (values, rows, taps, signal));
QKSCOPE_EXPORT_KERNEL(float, find_spectral_peaks,
                      (const FourComplex* points, std::span<const std::uint32_t> block_residues,
                       const BlockGains& gains, float* largest),
                      (points, block_residues, gains, largest));
QKSCOPE_EXPORT_KERNEL(void, find_peaks,
                      (const GridBlocks& grid, const float* largest, const PeakThresholds& wanted,
                       std::vector<PeakCandidate>& found),
                      (grid, largest, wanted, found));

}  // namespace qkscope
#endif
