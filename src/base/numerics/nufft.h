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
  static std::shared_ptr<const Fft> cached_of_size(std::size_t size);

  std::size_t size() const { return size_; }
  std::size_t block_count() const { return size_ / kBlock; }
  // Callback that receives consecutive ranges [begin, end) of finished output blocks as soon as
  // they are computed, while they are still in the L1 cache.
  using BlockRangeCallback = std::function<void(std::size_t begin, std::size_t end)>;
  // Transforms `signal` in place: X[k] = sum over n of signal[n] exp(-2 pi i k n / size). The
  // output is in digit-reversed order, which avoids a reordering pass: block_index(k %
  // block_count()) holds X[k] as number k / block_count() of its 16 values.
  void forward(std::span<FourComplex> signal, const BlockRangeCallback& done = nullptr) const;
  std::size_t block_index(std::size_t rest) const { return places_[rest]; }
  // Location of the output value X[k] in the array of vectors.
  struct OutputPosition {
    std::size_t vector;
    std::size_t lane;
  };
  OutputPosition locate_frequency(std::size_t k) const {
    const auto number = k >> block_bits_;
    return {4 * block_index(k & (block_count() - 1)) + number / 4, number % 4};
  }
  // Inverse of block_index(): block_residues()[block_index(r)] == r.
  std::span<const std::uint32_t> block_residues() const { return residues_; }

 private:
  explicit Fft(std::size_t size);
  void set_block_indices(std::span<const int> radices);

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
  // The grid to which rows are spread has five points per `tokens` positions.
  NufftTables(std::size_t size, std::int64_t tokens, FrequencyBand band);
  // Returns cached tables; one instance per process and set of arguments.
  static std::shared_ptr<const NufftTables> find_or_make_cached(std::size_t size,
                                                                std::int64_t tokens,
                                                                FrequencyBand band);

  bool is_inside_band(std::int64_t k) const { return k >= inner.begin && k < inner.end; }
  // On small grids, the deconvolution gains of neighbouring points differ too much to be shared.
  bool has_few_points() const { return fft->size() <= 256; }
  // Returns the squared deconvolution gains of a block, shape (4).
  const FourFloats* gains_of_block(std::int64_t block) const {
    return shared_gain.data() + (block >> shift) * 4;
  }

  static constexpr std::int64_t kMarginBlocks = 4;

  std::shared_ptr<const Fft> fft;
  std::array<float, 8> halfway;  // weights of eight points that interpolate the middle of them
  double step;
  std::int64_t first;  // half grid points that cover the band: first..last
  std::int64_t last;
  GridRange inner;               // grid points well inside the band
  std::vector<FourFloats> taps;  // (tokens, 4, 3): ES kernel weights per phase and lane
  std::vector<float> gain;  // (size / 2 + 1): deconvolution, 1 / Fourier transform of the kernel
  int shift = 0;            // 2^shift blocks share one line of gains
  std::vector<FourFloats> shared_gain;  // ((blocks >> shift) + 1, 4): squared; 0 outside the band
  std::vector<GridRange> edges;         // grid points of the band that shared_gain excludes
  std::vector<std::uint32_t> places;    // (margin + blocks + margin): first vector of each block

 private:
  void set_kernel_taps(std::int64_t tokens);
  void set_deconvolution_gains(double highest);
  void set_block_gains();
  void add_band_edges(GridRange all, GridRange inside);
  void set_block_offsets();
};

// Computes S(omega) = sum z_t exp(-i omega (t - origin())) at omega = k frequency_step(), in single
// precision with a relative error below 2e-3. The grid has at least 1.4 points per resolution cell
// 2 pi / length, so values between grid points can be interpolated.
class Nufft {
 public:
  // Only frequencies in or near the band may be queried; a lower band.high gives a smaller grid.
  // `offsets` are positions relative to the smallest one, all below `length`.
  Nufft(std::span<const std::int32_t> offsets, std::int64_t length, FrequencyBand band);

  // Transforms `values`, shape (offsets).
  void transform_values(std::span<const std::complex<double>> values);

  double frequency_step() const { return tables_->step; }
  double origin() const { return to_double(middle_) * tokens_per_point(); }
  std::int64_t size() const { return static_cast<std::int64_t>(fft().size()); }
  // First and last multiple of half a grid step that cover the band of positive frequencies.
  std::int64_t band_first_half_step() const { return tables_->first; }
  std::int64_t band_last_half_step() const { return tables_->last; }
  // Returns whether grid point k, which may be negative, and its neighbours lie in the band.
  bool is_inside_band(std::int64_t k) const { return tables_->is_inside_band(std::abs(k)); }
  // Returns S at grid point k, which may be negative.
  std::complex<double> value_at_point(std::int64_t k) const {
    const auto value = value_before_deconvolution(k);
    const double gain = tables_->gain[as_index(std::abs(signed_index(k)))];
    return {gain * value.real(), gain * value.imag()};
  }
  // Returns |S|^2 at half / 2 grid steps. Midpoints between grid points (odd `half`) are
  // interpolated from eight neighbours, with an error of a few percent.
  double power(std::int64_t half) const;
  // Returns the largest |S|^2 over the grid points inside the band, to about 1 %.
  float max_power_in_band() const { return highest_; }
  // Appends the grid points and midpoints in the band with |S|^2 > `least`, for both signs of the
  // frequency; duplicates are possible. PeakCandidate::half of a negative frequency is taken modulo
  // 2 size(). A midpoint is considered only if one of its two grid points is above `near`.
  void find_peaks_above(float least, float near, std::vector<PeakCandidate>& found) const;
  // Returns the power spectrum |S|^2 at five frequencies a quarter grid step apart, centred on
  // `half` half grid steps. Each value is interpolated from 16 neighbours.
  std::array<double, 5> powers_at_quarter_steps(std::int64_t half) const;

 private:
  const Fft& fft() const { return *tables_->fft; }
  double tokens_per_point() const;
  std::size_t index(std::int64_t k) const { return as_index(k) & (fft().size() - 1); }
  std::int64_t signed_index(std::int64_t k) const {
    const auto at = static_cast<std::int64_t>(index(k));
    return 2 * at > size() ? at - size() : at;
  }
  std::complex<float> value_before_deconvolution(std::int64_t k) const {
    const auto [vector, lane] = fft().locate_frequency(index(k));
    const FourComplex& four = signal_[vector];
    return {four.re[lane], four.im[lane]};
  }
  void spread(std::span<const std::complex<double>> values);
  void copy_margins();
  void find_edge_peaks(GridRange stretch, std::span<const float> powers, float least, float near,
                       std::vector<PeakCandidate>& found) const;

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
