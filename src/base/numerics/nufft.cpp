// Nonuniform FFT of type 1 with the exponential-of-semicircle (ES) kernel, as in FINUFFT (Barnett,
// Magland and af Klinteberg, SIAM J. Sci. Comput. 41, 2019):
//   1. Spread: value z_t at grid coordinate u = 5 t / tokens is added to the eight nearest points m
//      with weights phi(u - m), phi(x) = exp(b (sqrt(1 - (x / 4)^2) - 1)), b = 13.25.
//   2. A single-precision FFT of the grid (nufft.h).
//   3. Deconvolve: divide by the Fourier transform of phi (`gain` is its inverse).
// Aliasing of phi is below 2e-3 for angles up to 2.82 radians per grid point; `tokens` is the
// largest step that keeps the band below that angle. Short inputs (tokens == 5) have one grid point
// per position and need neither weights nor gains. nufft_reference() in reference.h is the plain
// sum.
//
// Invariants: spreading a row writes 12 consecutive points, up to two vectors past the end of the
// grid; signal_ has 32 margin vectors for them, and spread_values() wraps the excess around to the
// start. The FFT leaves its output in digit-reversed blocks of 16 points; places[] finds a block.
// The spectrum is periodic: four margin blocks on either side hold its values beyond the ends,
// which interpolation reads.
#include "base/numerics/nufft.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "base/core/cpu_target.h"
#include "base/core/lazy_init.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/numerics/nufft.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Four = hn::CappedTag<float, 4>;
using Vector = hn::Vec<Four>;

HWY_INLINE const float* as_floats(const FourComplex* at) {
  return reinterpret_cast<const float*>(at);
}
HWY_INLINE float* as_floats(FourComplex* at) {
  return reinterpret_cast<float*>(at);
}

HWY_INLINE Vector load_four_floats(const FourFloats& values) {
  return hn::Load(Four(), reinterpret_cast<const float*>(&values));
}

HWY_INLINE void spread_row(const std::complex<double>& value, const SpreadingPosition& row,
                           const FourFloats* taps, FourComplex* signal) {
  const Vector re = hn::Set(Four(), static_cast<float>(value.real()));
  const Vector im = hn::Set(Four(), static_cast<float>(value.imag()));
  const FourFloats* const weights = taps + row.taps;
  float* const to = as_floats(signal + row.start);
#pragma GCC unroll 3
  for (std::int64_t v = 0; v < 3; ++v) {
    const Vector by = load_four_floats(weights[v]);
    hn::Store(hn::MulAdd(by, re, hn::Load(Four(), to + 8 * v)), Four(), to + 8 * v);
    hn::Store(hn::MulAdd(by, im, hn::Load(Four(), to + 8 * v + 4)), Four(), to + 8 * v + 4);
  }
}

// Adds value i times the 12 weights at taps[rows[i].taps] to the three vectors at
// signal[rows[i].start]. Rows are sorted by position, so consecutive rows write the same points.
// Interleaving four quarters of the rows avoids store-to-load stalls.
void spread_onto_grid(std::span<const std::complex<double>> values, const SpreadingPosition* rows,
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
  const float* const at = as_floats(&four);
  return squared_magnitude(hn::Load(Four(), at), hn::Load(Four(), at + 4));
}

// Returns the maxima of the four vectors: the maximum of vector i in lane i.
HWY_INLINE Vector maxima_of_vectors(Vector a, Vector b, Vector c, Vector d) {
  const Four f;
  const Vector ac = hn::Max(hn::InterleaveLower(f, a, c), hn::InterleaveUpper(f, a, c));
  const Vector bd = hn::Max(hn::InterleaveLower(f, b, d), hn::InterleaveUpper(f, b, d));
  return hn::Max(hn::InterleaveLower(f, ac, bd), hn::InterleaveUpper(f, ac, bd));
}

// Computes the deconvolved power |S|^2 and returns its maximum. For block i of `points`, stores the
// maximum of each of the four vectors in row residues[i] of `largest`, shape (blocks, 4).
float compute_power_maxima(const FourComplex* points, std::span<const std::uint32_t> residues,
                           const NufftTables& tables, float* largest) {
  Vector highest = hn::Zero(Four());
  for (std::size_t block = 0; block < residues.size(); ++block, points += 4) {
    const FourFloats* const gain = tables.gains_of_block(residues[block]);
    Vector power[4];
#pragma GCC unroll 4
    for (std::size_t v = 0; v < 4; ++v)
      power[v] = hn::Mul(powers_at_points(points[v]), load_four_floats(gain[v]));
    const Vector here = maxima_of_vectors(power[0], power[1], power[2], power[3]);
    hn::Store(here, Four(), largest + 4 * residues[block]);
    highest = hn::Max(highest, here);
  }
  return hn::GetLane(hn::MaxOfLanes(Four(), highest));
}

// Returns |S|^2 before deconvolution, midway between each grid point of vector `v` and the next.
HWY_INLINE Vector powers_at_midpoints(const FourComplex* signal, const std::uint32_t* places,
                                      std::size_t v, const float* weights) {
  Vector re = hn::Zero(Four());
  Vector im = hn::Zero(Four());
#pragma GCC unroll 8
  for (std::ptrdiff_t j = 0; j < 8; ++j) {
    const float* const from = as_floats(signal + places[j - 3] + v);
    const Vector by = hn::Set(Four(), weights[j]);
    re = hn::MulAdd(by, hn::Load(Four(), from), re);
    im = hn::MulAdd(by, hn::Load(Four(), from + 4), im);
  }
  return squared_magnitude(re, im);
}

// Appends a candidate for each SIMD lane with |S|^2 above `least`. The frequency of lane i is
// half + i * apart, in half grid steps. Not inlined, to keep the calling loop short.
HWY_NOINLINE void append_peaks_above(std::int64_t half, std::int64_t apart, Vector power,
                                     float least, std::vector<PeakCandidate>& found) {
  if (hn::AllFalse(Four(), hn::Gt(power, hn::Set(Four(), least)))) return;
  float powers[4];
  hn::StoreU(power, Four(), powers);
  for (int i = 0; i < 4; ++i)
    if (powers[i] > least) found.push_back({half + i * apart, powers[i]});
}

// Appends the points with |S|^2 > `least` to `found`. The midpoint of two grid points is evaluated
// only if |S|^2 at one of them exceeds `near`. `largest` (blocks + 1, 4): maximum of each vector.
void find_peaks(const FourComplex* signal, const NufftTables& tables, const float* largest,
                float least, float near, std::vector<PeakCandidate>& found) {
  const auto blocks = static_cast<std::int64_t>(tables.fft->block_count());
  for (std::int64_t block = 0; block < blocks; ++block) {
    const float* const highest = largest + 4 * block;
    const Vector of_both = hn::Max(hn::Load(Four(), highest), hn::Load(Four(), highest + 4));
    if (hn::AllFalse(Four(), hn::Gt(of_both, hn::Set(Four(), near)))) continue;
    const std::uint32_t* const places = tables.places.data() + NufftTables::kMarginBlocks + block;
    for (std::size_t v = 0; v < 4; ++v) {
      if (!(std::max(highest[v], highest[v + 4]) > near)) continue;
      const Vector gain = load_four_floats(tables.gains_of_block(block)[v]);
      const Vector gain_after = load_four_floats(tables.gains_of_block(block + 1)[v]);
      const Vector here = hn::Mul(powers_at_points(signal[places[0] + v]), gain);
      const Vector mean = hn::Mul(hn::Set(Four(), 0.5F), hn::Add(gain, gain_after));
      const Vector between =
          hn::Mul(powers_at_midpoints(signal, places, v, tables.halfway.data()), mean);
      const auto half = 2 * (block + 4 * static_cast<std::int64_t>(v) * blocks);
      append_peaks_above(half, 2 * blocks, here, least, found);
      append_peaks_above(half + 1, 2 * blocks, between, least, found);
    }
  }
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

HWY_EXPORT(spread_onto_grid);
HWY_EXPORT(compute_power_maxima);
HWY_EXPORT(find_peaks);

constexpr std::int64_t kGridPoints = 5;  // grid points per `tokens` positions

// The exponential-of-semicircle (ES) kernel: exp(b (sqrt(1 - x^2) - 1)) on [-1, 1], otherwise 0.
double es_kernel(double sharpness, double x) {
  return std::fabs(x) < 1 ? std::exp(sharpness * (std::sqrt(1 - x * x) - 1)) : 0;
}

// Parameters of the spreading kernel, chosen for angles up to kHighestAngle radians per grid point.
constexpr double kSharpness = 13.25;
constexpr double kHighestAngle = 2.82;
constexpr double kReach = 4;  // points

double spreading_kernel(double distance) {
  return es_kernel(kSharpness, distance / kReach);
}

std::int64_t choose_spreading_step(double highest, std::int64_t length) {
  constexpr double kMost = 64;
  if (length <= 64) return kGridPoints;
  const double tokens = std::min(kMost, to_double(kGridPoints) * kHighestAngle / highest);
  return std::max(kGridPoints, static_cast<std::int64_t>(tokens));
}

std::size_t choose_fft_size(double points) {
  return std::bit_ceil(static_cast<std::size_t>(std::max(128.0, 1.4 * points)));
}

// Returns half the Fourier transform of the kernel at `angle` radians per grid point, by the
// trapezoidal rule with two samples per point.
double spreading_kernel_transform(double angle) {
  const auto& values = lazy_init_lock_free([] {
    std::array<double, 8> half_points;
    for (std::size_t n = 0; n < half_points.size(); ++n)
      half_points[n] = spreading_kernel(0.5 * to_double(n));
    return half_points;
  });
  const double c = std::cos(0.5 * angle);
  double before = 1;
  double cosine = c;
  double sum = 0.5 * values[0];
  for (std::size_t n = 1; n < values.size(); ++n) {
    sum += values[n] * cosine;
    before = std::exchange(cosine, 2 * c * cosine - before);
  }
  return sum;
}

// Returns a weight for sinc interpolation, windowed by an ES kernel of half-width `side` points.
double interpolation_weight(double x, int side, double sharpness) {
  return std::sin(std::numbers::pi * x) / (std::numbers::pi * x) * es_kernel(sharpness, x / side);
}

// Weights of 16 grid points that interpolate the spectrum a quarter, a half and three quarters of a
// grid step after a point. The error is 2e-3 at 1.4 points per resolution cell.
constexpr int kHalfWidth = 8;
using Weights = std::array<std::array<double, 2 * kHalfWidth>, 4>;

const Weights& interpolation_table() {
  const auto& weights = lazy_init_lock_free([] {
    Weights table{};
    for (std::size_t quarter = 1; quarter < 4; ++quarter)
      for (std::size_t j = 0; j < 2 * kHalfWidth; ++j)
        table[quarter][j] = interpolation_weight(
            0.25 * to_double(quarter) + (kHalfWidth - 1) - to_double(j), kHalfWidth, 7.2);
    return table;
  });
  return weights;
}

}  // namespace

NufftTables::NufftTables(std::size_t size, std::int64_t tokens, FrequencyBand band)
    : fft(Fft::find_or_make_cached(size)),
      step(2 * std::numbers::pi * kGridPoints /
           to_double(tokens * static_cast<std::int64_t>(size))),
      first(static_cast<std::int64_t>(std::floor(2 * band.low / step))),
      last(static_cast<std::int64_t>(std::ceil(2 * band.high / step))),
      inner{first / 2 + 2, last / 2 - 1},
      gain(size / 2 + 1, 1.0F) {
  for (std::size_t j = 0; j < halfway.size(); ++j)
    halfway[j] = static_cast<float>(interpolation_weight(3.5 - to_double(j), 4, 3.6));
  set_spreading_weights(tokens);
  if (tokens > kGridPoints) set_deconvolution_gains(band.high);
  set_shared_gains();
  set_block_offsets();
}

std::shared_ptr<const NufftTables> NufftTables::find_or_make_cached(std::size_t size,
                                                                    std::int64_t tokens,
                                                                    FrequencyBand band) {
  static std::mutex mutex;
  static std::map<std::tuple<std::size_t, std::int64_t, double, double>,
                  std::shared_ptr<const NufftTables>>
      made;
  const std::lock_guard lock(mutex);
  auto& slot = made[{size, tokens, band.low, band.high}];
  if (!slot) slot = std::make_shared<const NufftTables>(size, tokens, band);
  return slot;
}

void NufftTables::set_spreading_weights(std::int64_t tokens) {
  for (std::int64_t phase = 0; phase < tokens; ++phase)
    for (std::int64_t start = 0; start < 4; ++start)
      for (std::int64_t i = 0; i < 12; ++i) {
        const auto m = i - start;
        const double distance = to_double(m - 3) - to_double(phase) / to_double(tokens);
        const double tap = tokens > kGridPoints ? spreading_kernel(distance) : (m == 3 ? 1 : 0);
        if (i % 4 == 0) taps.emplace_back();
        taps.back()[i % 4] = m >= 0 && m < 8 ? static_cast<float>(tap) : 0.0F;
      }
}

void NufftTables::set_deconvolution_gains(double highest) {
  const auto end = static_cast<std::int64_t>(highest / step) + 2 * kHalfWidth;  // with margin
  for (std::int64_t k = 0; k <= std::min(end, std::ssize(gain) - 1); ++k) {
    const double angle = 2 * std::numbers::pi * to_double(k) / to_double(fft->size());
    gain[as_index(k)] = static_cast<float>(1 / spreading_kernel_transform(angle));
  }
}

// Computes the squared deconvolution gains of the NUFFT. Each group of 2^shift neighbouring blocks
// shares one gain, which is 0 unless the whole group lies inside the frequency band.
void NufftTables::set_shared_gains() {
  constexpr std::size_t kLines = 128;
  const auto size = static_cast<std::int64_t>(fft->size());
  const auto blocks = static_cast<std::int64_t>(fft->block_count());
  shift = std::max(0, std::countr_zero(fft->block_count()) - std::countr_zero(kLines));
  const std::int64_t together = std::int64_t{1} << shift;
  const GridRange negative{size - inner.end + 1, size - inner.begin + 1};
  const auto shared = [&](std::int64_t begin) {
    const auto within = [&](const GridRange& all) {
      return adjacent_points_share_gains() && begin >= all.begin && begin + together <= all.end;
    };
    const auto middle = begin + together / 2;
    const auto one = gain[as_index(std::min(middle, size - middle))];
    return within(inner) || within(negative) ? one * one : 0.0F;
  };
  for (std::int64_t block = 0; block <= blocks; block += together)
    for (std::int64_t number = 0; number < 16; ++number) {
      if (number % 4 == 0) shared_gain.emplace_back();
      shared_gain.back()[number % 4] = shared((block + number * blocks) % size);
    }
  const GridRange all{first / 2, last / 2 + 2};
  append_edge_ranges(all, inner);
  append_edge_ranges({size - all.end + 1, size - all.begin + 1}, negative);
}

// Appends to `edges` the points of `all` before the first and after the last group in `inside` that
// shares a gain. The second range starts one point early, to cover the midpoint after that group.
void NufftTables::append_edge_ranges(GridRange all, GridRange inside) {
  const std::int64_t together = std::int64_t{1} << shift;
  const GridRange whole{(inside.begin + together - 1) / together * together,
                        inside.end / together * together};
  if (!adjacent_points_share_gains() || whole.begin >= whole.end) {
    edges.push_back(all);
    return;
  }
  edges.push_back({all.begin, whole.begin});
  edges.push_back({whole.end - 1, all.end});
}

void NufftTables::set_block_offsets() {
  const auto blocks = static_cast<std::int64_t>(fft->block_count());
  for (std::int64_t block = -kMarginBlocks; block < blocks + kMarginBlocks; ++block) {
    const bool within = block >= 0 && block < blocks;
    const auto margin =
        blocks + (block < 0 ? block + kMarginBlocks : block - blocks + kMarginBlocks);
    const auto place = within ? fft->block_of_residue(as_index(block)) : as_index(margin);
    places.push_back(static_cast<std::uint32_t>(4 * place));
  }
}

Nufft::Nufft(std::span<const std::int32_t> offsets, std::int64_t length, FrequencyBand band)
    : tokens_(choose_spreading_step(band.high, length)),
      tables_(NufftTables::find_or_make_cached(
          choose_fft_size(to_double(length) / tokens_per_grid_point()), tokens_, band)),
      middle_(length / 2 * kGridPoints / tokens_),
      signal_(fft().size() / 4 + 4 * 2 * NufftTables::kMarginBlocks),
      largest_(4 * (fft().block_count() + 1)) {
  rows_.reserve(offsets.size());
  const auto tokens = static_cast<std::uint32_t>(tokens_);
  for (const auto offset : offsets) {
    const auto fine = static_cast<std::uint32_t>(offset * kGridPoints);
    const auto start = wrapped_index(fine / tokens - 3 - middle_);
    rows_.push_back({static_cast<std::uint32_t>(start / 4),
                     static_cast<std::uint32_t>((fine % tokens * 4 + start % 4) * 3)});
  }
}

double Nufft::tokens_per_grid_point() const {
  return to_double(tokens_) / kGridPoints;
}

void Nufft::spread_values(std::span<const std::complex<double>> values) {
  std::memset(signal_.data(), 0, std::span(signal_).size_bytes());
  QKSCOPE_DISPATCH(spread_onto_grid)
  (values, rows_.data(), tables_->taps.data(), signal_.data());
  // The grid is periodic: add the points beyond its end to its beginning.
  for (std::size_t v = 0; v < 3; ++v) {
    const FourComplex& past = signal_[fft().size() / 4 + v];
    signal_[v].re += past.re;
    signal_[v].im += past.im;
  }
}

void Nufft::compute_spectrum(std::span<const std::complex<double>> values) {
  spread_values(values);
  highest_ = 0;
  fft().transform_in_place(
      std::span(signal_).first(fft().size() / 4), [&](std::size_t begin, std::size_t end) {
        const auto residues = fft().block_residues().subspan(begin, end - begin);
        highest_ = std::max(
            highest_, QKSCOPE_DISPATCH(compute_power_maxima)(signal_.data() + 4 * begin, residues,
                                                             *tables_, largest_.data()));
      });
  fill_periodic_margins();
  // The grid is periodic: the block after the last one is block 0 shifted by one value, so its
  // vector v contains values of the vectors v and v + 1 of block 0.
  for (std::size_t v = 0; v < 4; ++v)
    largest_[4 * fft().block_count() + v] = std::max(largest_[v], largest_[(v + 1) % 4]);
  edge_powers_.clear();
  for (const auto& edge : tables_->edges)
    for (std::int64_t k = edge.begin; k <= edge.end; ++k) {
      edge_powers_.push_back(static_cast<float>(power_at_half_step(2 * k)));
      if (k < edge.end && is_inside_band(signed_index(k)))
        highest_ = std::max(highest_, edge_powers_.back());
    }
}

// Fills the margin blocks with the periodic continuation of the spectrum.
void Nufft::fill_periodic_margins() {
  const auto blocks = static_cast<std::int64_t>(fft().block_count());
  const auto copy = [&](std::int64_t block) {
    FourComplex* const to =
        signal_.data() + tables_->places[as_index(block + NufftTables::kMarginBlocks)];
    for (std::int64_t number = 0; number < 16; ++number) {
      const auto value = value_before_deconvolution(block + number * blocks);
      to[number / 4].re[number % 4] = value.real();
      to[number / 4].im[number % 4] = value.imag();
    }
  };
  for (std::int64_t block = 0; block < NufftTables::kMarginBlocks; ++block) {
    copy(block - NufftTables::kMarginBlocks);
    copy(blocks + block);
  }
}

double Nufft::power_at_half_step(std::int64_t half) const {
  const auto k = half >> 1;
  if ((half & 1) == 0) return std::norm(value_at_grid_point(k));
  std::complex<double> sum;
  for (int j = 0; j < 8; ++j)
    sum += static_cast<double>(tables_->halfway[as_index(j)]) * value_at_grid_point(k + j - 3);
  return std::norm(sum);
}

// Like find_peaks(), but for points near the band edges, which have individual deconvolution gains.
void Nufft::find_band_edge_peaks(GridRange stretch, std::span<const float> powers, float least,
                                 float near, std::vector<PeakCandidate>& found) const {
  const auto add = [&](std::int64_t half, float here) {
    if (here > least) found.push_back({half, here});
  };
  for (std::int64_t k = stretch.begin; k < stretch.end; ++k) {
    const auto at = as_index(k - stretch.begin);
    if (!(std::max(powers[at], powers[at + 1]) > near)) continue;
    add(2 * k, powers[at]);
    add(2 * k + 1, static_cast<float>(power_at_half_step(2 * k + 1)));
  }
}

void Nufft::find_peaks_above(float least, float near, std::vector<PeakCandidate>& found) const {
  QKSCOPE_DISPATCH(find_peaks)
  (signal_.data(), *tables_, largest_.data(), least, near, found);
  std::span<const float> powers = edge_powers_;
  for (const auto& edge : tables_->edges) {
    find_band_edge_peaks(edge, powers, least, near, found);
    powers = powers.subspan(as_index(edge.end - edge.begin + 1));
  }
}

std::array<double, 5> Nufft::powers_around_half_step(std::int64_t half) const {
  // Grid points k - kHalfWidth to k + kHalfWidth + 1, to interpolate between points k and k + 1.
  const std::int64_t k = half >> 1;
  std::array<std::complex<double>, 2 * kHalfWidth + 2> points;
  for (int j = 0; j < std::ssize(points); ++j)
    points[as_index(j)] = value_at_grid_point(k + j - kHalfWidth);
  const auto between = [&](int quarter) {  // offset from k in quarter steps
    const auto first = as_index(quarter < 0 ? 0 : 1);
    const auto& weights = interpolation_table()[as_index((quarter + 4) % 4)];
    std::complex<double> sum;
    for (std::size_t j = 0; j < 2 * kHalfWidth; ++j) sum += weights[j] * points[first + j];
    return std::norm(sum);
  };
  const double here = std::norm(points[kHalfWidth]);
  if ((half & 1) == 0) return {between(-2), between(-1), here, between(1), between(2)};
  return {here, between(1), between(2), between(3), std::norm(points[kHalfWidth + 1])};
}

}  // namespace qkscope
#endif
