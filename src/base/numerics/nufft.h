// Nonuniform FFT (NUFFT, type 1): Fourier sums of values at irregular integer positions on a
// uniform grid of frequencies.
#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/core/numbers.h"

namespace qkscope {

using FourFloats = float __attribute__((vector_size(16)));

struct alignas(32) FourComplex {
  FourFloats re;
  FourFloats im;
};

struct Twiddle {
  float re;
  float im;
};

// Twiddle factors of all FFT passes; `length` in the shapes below counts FourComplex vectors.
struct FftTables {
  // Wide FFT passes combine values of different parts (cache-sized segments) of the signal. The
  // four values of a vector share their twiddle factors.
  std::vector<int> radices;                // per wide pass
  std::vector<std::vector<Twiddle>> wide;  // per wide pass: (length / radix, radix - 1)
  std::size_t part = 0;                    // vectors per part; a part fits into the L1 cache
  // Deep FFT passes have radix 8 and work within one cache-sized part of the signal.
  std::vector<std::vector<FourComplex>> deep;  // per deep pass: (length / 8, 7)
  std::vector<FourComplex> last;               // (parts, 3): last pass, over the lanes of vectors
};

class Fft {
 public:
  static constexpr std::size_t kBlock = 16;  // output frequencies per block

  // Returns the cached transform of the given size, a power of two and at least 128.
  static std::shared_ptr<const Fft> find_or_make_cached(std::size_t size);

  std::size_t size() const { return size_; }
  std::size_t block_count() const { return size_ / kBlock; }
  // Callback that receives consecutive ranges [begin, end) of finished output blocks as soon as
  // they are computed, while they are still in the L1 cache.
  using BlockRangeCallback = std::function<void(std::size_t begin, std::size_t end)>;
  // Transforms `signal` in place: X[k] = sum over n of signal[n] exp(-2 pi i k n / size). The
  // output is in digit-reversed order, which avoids a reordering pass: X[k] is value k /
  // block_count() (0 to 15) of block block_of_residue(k % block_count()).
  void transform_in_place(std::span<FourComplex> signal,
                          const BlockRangeCallback& done = nullptr) const;
  std::size_t block_of_residue(std::size_t residue) const { return places_[residue]; }
  // Location of the output value X[k] in the array of vectors.
  struct SimdIndex {
    std::size_t vector;
    std::size_t lane;
  };
  SimdIndex simd_index_of_frequency(std::size_t k) const {
    const auto number = k >> block_bits_;
    return {4 * block_of_residue(k & (block_count() - 1)) + number / 4, number % 4};
  }
  // Shape (blocks). k % block_count() of the values X[k] in each block: inverts block_of_residue().
  std::span<const std::uint32_t> block_residues() const { return residues_; }

 private:
  explicit Fft(std::size_t size);
  void compute_digit_reversal(std::span<const int> radices);

  std::size_t size_;
  int block_bits_;  // block_count() is a power of two
  FftTables tables_;
  std::vector<std::uint32_t> places_;    // (blocks)
  std::vector<std::uint32_t> residues_;  // (blocks)
};

struct FrequencyBand {
  double low = 0;  // radians per token, 0 <= low < high <= pi
  double high = 1;
};

// A frequency with a large |S|^2; `power` is |S|^2 with a relative error of about 1 %.
struct PeakCandidate {
  std::int64_t half = 0;  // in half grid steps: 2 i at grid point i, 2 i + 1 halfway to i + 1
  float power = 0;
};

// The NUFFT grid points that one row is spread to.
struct SpreadingPosition {
  std::uint32_t start;  // index of the first FourComplex
  std::uint32_t taps;   // index of the first FourFloats of kernel weights
};

// Grid points [begin, end).
struct GridRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Constants shared by all transforms of one grid size and band.
struct NufftTables {
  // Tables for a grid of `size` points, with five grid points for every `tokens` token positions.
  NufftTables(std::size_t size, std::int64_t tokens, FrequencyBand band);
  // Returns cached tables; one instance per process and set of arguments.
  static std::shared_ptr<const NufftTables> find_or_make_cached(std::size_t size,
                                                                std::int64_t tokens,
                                                                FrequencyBand band);

  bool is_inside_band(std::int64_t k) const { return k >= inner.begin && k < inner.end; }
  // On small grids, the deconvolution gains of neighbouring points differ too much to be shared.
  bool adjacent_points_share_gains() const { return fft->size() > 256; }
  // Returns the squared deconvolution gains of a block, shape (4).
  const FourFloats* gains_of_block(std::int64_t block) const {
    return shared_gain.data() + (block >> shift) * 4;
  }

  static constexpr std::int64_t kMarginBlocks = 4;

  std::shared_ptr<const Fft> fft;
  std::array<float, 8> halfway;  // weights of eight points to interpolate midway
  double step;
  std::int64_t first;  // the band in half grid steps: first..last
  std::int64_t last;
  GridRange inner;               // grid points well inside the band
  std::vector<FourFloats> taps;  // (tokens, 4, 3): ES kernel weights per phase and lane
  std::vector<float> gain;  // (size / 2 + 1): deconvolution, 1 / Fourier transform of the kernel
  int shift = 0;            // 2^shift blocks share one row of shared_gain
  std::vector<FourFloats> shared_gain;  // ((blocks >> shift) + 1, 4): squared; 0 outside the band
  std::vector<GridRange> edges;         // grid points of the band that shared_gain excludes
  std::vector<std::uint32_t> places;    // (margin + blocks + margin): first vector of each block

 private:
  void set_spreading_weights(std::int64_t tokens);
  void set_deconvolution_gains(double highest);
  void set_shared_gains();
  void append_edge_ranges(GridRange all, GridRange inside);
  void set_block_offsets();
};

// Nonuniform FFT: computes S(omega) = sum z_t exp(-i omega (t - phase_origin())) at omega = k
// frequency_step(), in single precision with a relative error below 2e-3. The grid has at least 1.4
// points per resolution cell 2 pi / length, so values between grid points can be interpolated.
class Nufft {
 public:
  // Only frequencies in or near the band may be queried; a lower band.high gives a smaller grid.
  // `offsets` are positions relative to the smallest one, all below `length`.
  Nufft(std::span<const std::int32_t> offsets, std::int64_t length, FrequencyBand band);

  // Computes the spectrum of `values`, shape (offsets). The functions below refer to it.
  void compute_spectrum(std::span<const std::complex<double>> values);

  double frequency_step() const { return tables_->step; }
  double phase_origin() const { return to_double(middle_) * tokens_per_grid_point(); }
  std::int64_t size() const { return static_cast<std::int64_t>(fft().size()); }
  // Frequency band in multiples of half a grid step: low end rounded down, high end up.
  std::int64_t band_low_in_half_steps() const { return tables_->first; }
  std::int64_t band_high_in_half_steps() const { return tables_->last; }
  // Returns whether grid point k, which may be negative, and its neighbours lie in the band.
  bool is_inside_band(std::int64_t k) const { return tables_->is_inside_band(std::abs(k)); }
  // Returns the Fourier sum S at grid point k, which may be negative.
  std::complex<double> value_at_grid_point(std::int64_t k) const {
    const auto value = value_before_deconvolution(k);
    const double gain = tables_->gain[as_index(std::abs(signed_index(k)))];
    return {gain * value.real(), gain * value.imag()};
  }
  // Returns the power |S|^2 at a frequency of `half` half grid steps. For odd `half`, a midpoint, S
  // is interpolated from eight neighbouring grid points, with an error of a few percent.
  double power_at_half_step(std::int64_t half) const;
  // Returns the largest power |S|^2 over the grid points inside the band, to about 1 %.
  float max_power_in_band() const { return highest_; }
  // Appends the grid points and midpoints in the band with |S|^2 > `least`, for both signs of the
  // frequency; duplicates are possible. PeakCandidate::half of a negative frequency is taken modulo
  // 2 size(). A midpoint is considered only if |S|^2 at one of its two grid points exceeds `near`.
  void find_peaks_above(float least, float near, std::vector<PeakCandidate>& found) const;
  // Returns the power |S|^2 at five frequencies, a quarter of a grid step apart. The middle one is
  // `half` half grid steps. Values between grid points are interpolated from 16 neighbours.
  std::array<double, 5> powers_around_half_step(std::int64_t half) const;

 private:
  const Fft& fft() const { return *tables_->fft; }
  double tokens_per_grid_point() const;
  std::size_t wrapped_index(std::int64_t k) const { return as_index(k) & (fft().size() - 1); }
  std::int64_t signed_index(std::int64_t k) const {
    const auto at = static_cast<std::int64_t>(wrapped_index(k));
    return 2 * at > size() ? at - size() : at;
  }
  std::complex<float> value_before_deconvolution(std::int64_t k) const {
    const auto [vector, lane] = fft().simd_index_of_frequency(wrapped_index(k));
    const FourComplex& four = signal_[vector];
    return {four.re[lane], four.im[lane]};
  }
  void spread_values(std::span<const std::complex<double>> values);
  void fill_periodic_margins();
  void find_band_edge_peaks(GridRange stretch, std::span<const float> powers, float least,
                            float near, std::vector<PeakCandidate>& found) const;

  std::int64_t tokens_;
  std::shared_ptr<const NufftTables> tables_;
  std::int64_t middle_;  // grid point of the origin
  std::vector<SpreadingPosition> rows_;
  std::vector<FourComplex> signal_;  // (size / 4 + margins); margins repeat blocks periodically
  std::vector<float> largest_;       // (blocks + 1, 4): largest |S|^2 of each vector
  std::vector<float> edge_powers_;   // |S|^2 at edge.begin..edge.end of each edge
  float highest_ = 0;
};

}  // namespace qkscope
