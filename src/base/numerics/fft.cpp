// Mixed-radix decimation-in-frequency FFT. Radix-8 passes split the signal into parts of 256
// vectors, which fit into the L1 cache; one pass of radix 2 or 4 comes first if the number of
// splits is not a power of 8. Each part is then transformed completely before the next one. The
// last pass transforms blocks of four vectors and, after a 4 x 4 transpose, the four lanes of each
// vector. All targets use 128-bit vectors: the whole FFT is 7 % of the analyses, so wider vectors
// could not save 5 %.
#include <bit>
#include <cmath>
#include <complex>
#include <map>
#include <mutex>
#include <numbers>

#include "base/core/cpu_target.h"
#include "base/core/error.h"
#include "base/numerics/nufft.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/numerics/fft.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 4>;
using Vector = hn::Vec<Floats>;

HWY_INLINE const float* as_floats(const FourComplex& from) {
  return reinterpret_cast<const float*>(&from);
}

HWY_INLINE void transpose(Vector& a, Vector& b, Vector& c, Vector& d) {
  const Floats f;
  const auto ac_low = hn::InterleaveLower(f, a, c);
  const auto ac_high = hn::InterleaveUpper(f, a, c);
  const auto bd_low = hn::InterleaveLower(f, b, d);
  const auto bd_high = hn::InterleaveUpper(f, b, d);
  a = hn::InterleaveLower(f, ac_low, bd_low);
  b = hn::InterleaveUpper(f, ac_low, bd_low);
  c = hn::InterleaveLower(f, ac_high, bd_high);
  d = hn::InterleaveUpper(f, ac_high, bd_high);
}

// Complex numbers with real and imaginary parts in separate registers.
struct SplitComplex {
  Vector re;
  Vector im;

  // Not "= default": GCC would compile a defaulted constructor for the baseline target.
  HWY_INLINE SplitComplex() {}
  HWY_INLINE SplitComplex(Vector real, Vector imaginary) : re(real), im(imaginary) {}
  HWY_INLINE explicit SplitComplex(const FourComplex& from)
      : re(hn::Load(Floats(), as_floats(from))), im(hn::Load(Floats(), as_floats(from) + 4)) {}
  HWY_INLINE explicit SplitComplex(const Twiddle& from)
      : re(hn::Set(Floats(), from.re)), im(hn::Set(Floats(), from.im)) {}
  HWY_INLINE void store(FourComplex& to) const {
    hn::Store(re, Floats(), reinterpret_cast<float*>(&to));
    hn::Store(im, Floats(), reinterpret_cast<float*>(&to) + 4);
  }

  HWY_INLINE SplitComplex operator+(const SplitComplex& other) const {
    return {hn::Add(re, other.re), hn::Add(im, other.im)};
  }
  HWY_INLINE SplitComplex operator-(const SplitComplex& other) const {
    return {hn::Sub(re, other.re), hn::Sub(im, other.im)};
  }
  HWY_INLINE SplitComplex multiply_by_minus_i() const { return {im, hn::Neg(re)}; }
  HWY_INLINE SplitComplex multiply_by_one_minus_i() const {
    return {hn::Add(re, im), hn::Sub(im, re)};
  }
  HWY_INLINE SplitComplex multiply_by_one_plus_i() const {
    return {hn::Sub(re, im), hn::Add(re, im)};
  }
  HWY_INLINE SplitComplex multiply_by_real(Vector by) const {
    return {hn::Mul(re, by), hn::Mul(im, by)};
  }
  HWY_INLINE SplitComplex multiply_by(const SplitComplex& by) const {
    return {hn::NegMulAdd(im, by.im, hn::Mul(re, by.re)),
            hn::MulAdd(re, by.im, hn::Mul(im, by.re))};
  }
  static HWY_INLINE void transpose_all(SplitComplex (&x)[4]) {
    transpose(x[0].re, x[1].re, x[2].re, x[3].re);
    transpose(x[0].im, x[1].im, x[2].im, x[3].im);
  }
};

HWY_INLINE void dft2(SplitComplex& a, SplitComplex& b) {
  const auto sum = a + b;
  b = a - b;
  a = sum;
}

HWY_INLINE void dft4(SplitComplex& a, SplitComplex& b, SplitComplex& c, SplitComplex& d) {
  dft2(a, c);
  dft2(b, d);
  const auto rotated = d.multiply_by_minus_i();
  dft2(a, b);
  d = c - rotated;
  const auto second = c + rotated;
  c = b;
  b = second;
}

HWY_INLINE void dft8(SplitComplex (&x)[8]) {
  dft4(x[0], x[2], x[4], x[6]);
  dft4(x[1], x[3], x[5], x[7]);
  // Radix-8 butterfly: multiplies the odd terms by exp(-i pi m / 4). The factor of odd[3] has the
  // opposite sign, so its sum and difference are swapped.
  const Vector root = hn::Set(Floats(), std::numbers::sqrt2_v<float> / 2);
  const SplitComplex odd[4] = {x[1], x[3].multiply_by_one_minus_i().multiply_by_real(root),
                               x[5].multiply_by_minus_i(),
                               x[7].multiply_by_one_plus_i().multiply_by_real(root)};
  const SplitComplex even[4] = {x[0], x[2], x[4], x[6]};
#pragma GCC unroll 3
  for (std::size_t m = 0; m < 3; ++m) {
    x[m] = even[m] + odd[m];
    x[m + 4] = even[m] - odd[m];
  }
  x[3] = even[3] - odd[3];
  x[7] = even[3] + odd[3];
}

HWY_INLINE void apply_butterfly(SplitComplex (&x)[2]) {
  dft2(x[0], x[1]);
}
HWY_INLINE void apply_butterfly(SplitComplex (&x)[4]) {
  dft4(x[0], x[1], x[2], x[3]);
}
HWY_INLINE void apply_butterfly(SplitComplex (&x)[8]) {
  dft8(x);
}

// One FFT pass of radix kRadix. `Factor`: Twiddle if all lanes share a factor, else FourComplex.
template <std::size_t kRadix, typename Factor>
void apply_fft_stage(FourComplex* signal, std::size_t length, const Factor* w) {
  const std::size_t apart = length / kRadix;
  for (std::size_t j = 0; j < apart; ++j, w += kRadix - 1) {
    SplitComplex x[kRadix];
#pragma GCC unroll 8
    for (std::size_t m = 0; m < kRadix; ++m) x[m] = SplitComplex(signal[j + m * apart]);
    apply_butterfly(x);
    x[0].store(signal[j]);
#pragma GCC unroll 8
    for (std::size_t r = 1; r < kRadix; ++r)
      x[r].multiply_by(SplitComplex(w[r - 1])).store(signal[j + r * apart]);
  }
}

// Last FFT pass: transforms each block of four vectors across the vectors, then across the lanes.
void apply_last_fft_stage(FourComplex* signal, std::size_t length, const FourComplex* w) {
  for (FourComplex* block = signal; block < signal + length; block += 4) {
    SplitComplex x[4];
#pragma GCC unroll 4
    for (std::size_t m = 0; m < 4; ++m) x[m] = SplitComplex(block[m]);
    apply_butterfly(x);
    SplitComplex::transpose_all(x);
#pragma GCC unroll 3
    for (std::size_t m = 1; m < 4; ++m) x[m] = x[m].multiply_by(SplitComplex(w[m - 1]));
    apply_butterfly(x);
#pragma GCC unroll 4
    for (std::size_t m = 0; m < 4; ++m) x[m].store(block[m]);
  }
}

void apply_deep_fft_stages(FourComplex* signal, std::size_t length, const FftTables& tables,
                           const FourComplex* last) {
  std::size_t sub = length;
  for (const auto& w : tables.deep) {
    for (std::size_t at = 0; at < length; at += sub) apply_fft_stage<8>(signal + at, sub, w.data());
    sub /= 8;
  }
  apply_last_fft_stage(signal, length, last);
}

void apply_wide_fft_stage(FourComplex* signal, std::size_t length, int radix, const Twiddle* w) {
  if (radix == 8) apply_fft_stage<8>(signal, length, w);
  if (radix == 4) apply_fft_stage<4>(signal, length, w);
  if (radix == 2) apply_fft_stage<2>(signal, length, w);
}

// Applies FFT pass `level` and all later passes to vectors [begin, begin + length) of the signal.
void apply_fft_stages(FourComplex* signal, std::size_t begin, std::size_t length,
                      const FftTables& tables, std::size_t level,
                      const Fft::BlockRangeCallback& done) {
  if (level == tables.radices.size()) {
    apply_deep_fft_stages(signal + begin, length, tables, tables.last.data() + begin / length * 3);
    if (done) done(begin / 4, (begin + length) / 4);
    return;
  }
  const int radix = tables.radices[level];
  apply_wide_fft_stage(signal + begin, length, radix, tables.wide[level].data());
  const auto sub = length / static_cast<std::size_t>(radix);
  for (std::size_t at = begin; at < begin + length; at += sub)
    apply_fft_stages(signal, at, sub, tables, level + 1, done);
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

HWY_EXPORT(apply_fft_stages);

// Returns exp(-2 pi i above / below).
std::complex<float> root_of_unity(std::size_t above, std::size_t below) {
  const double angle =
      2 * std::numbers::pi * static_cast<double>(above % below) / static_cast<double>(below);
  return {static_cast<float>(std::cos(angle)), static_cast<float>(-std::sin(angle))};
}

template <typename Above>
FourComplex four_roots_of_unity(std::size_t below, const Above& above) {
  FourComplex all;
  for (std::size_t lane = 0; lane < 4; ++lane) {
    const auto one = root_of_unity(above(lane), below);
    all.re[lane] = one.real();
    all.im[lane] = one.imag();
  }
  return all;
}

}  // namespace

Fft::Fft(std::size_t size) : size_(size), block_bits_(std::countr_zero(block_count())) {
  constexpr std::size_t kPart = 256;
  std::size_t length = size / 4;
  // If the number of blocks is not a power of 8, the first FFT pass has radix 2 or 4.
  const int left_over = 1 << block_bits_ % 3;
  if (left_over > 1) tables_.radices.push_back(left_over);
  std::vector<int> radices = tables_.radices;
  std::size_t wide = static_cast<std::size_t>(left_over);
  for (; length / wide > kPart; wide *= 8) tables_.radices.push_back(8);
  for (const int radix : tables_.radices) {
    auto& level = tables_.wide.emplace_back();
    const auto count = static_cast<std::size_t>(radix);
    for (std::size_t j = 0; j < length / count; ++j)
      for (std::size_t r = 1; r < count; ++r) {
        const auto w = root_of_unity(r * j, length);
        level.push_back({w.real(), w.imag()});
      }
    length /= count;
  }
  tables_.part = length;
  for (; length > 4; length /= 8) {
    auto& level = tables_.deep.emplace_back();
    for (std::size_t j = 0; j < length / 8; ++j)
      for (std::size_t r = 1; r < 8; ++r)
        level.push_back(
            four_roots_of_unity(4 * length, [&](std::size_t lane) { return (4 * j + lane) * r; }));
  }
  radices.insert(radices.end(), static_cast<std::size_t>(block_bits_ / 3), 8);
  compute_digit_reversal(radices);
  // The last FFT pass applies the twiddle factors that depend on the lane: the wide passes (across
  // cache-sized parts) and the transform across the vectors of a block leave them out.
  for (std::size_t block = 0; block < block_count(); block += tables_.part / 4)
    for (std::size_t m = 1; m < 4; ++m)
      tables_.last.push_back(four_roots_of_unity(
          size, [&](std::size_t lane) { return m * (residues_[block] + lane * block_count()); }));
}

// Computes the digit-reversal permutation of the output blocks: a pass of radix r groups the
// indices by their remainder modulo r.
void Fft::compute_digit_reversal(std::span<const int> radices) {
  places_.resize(block_count());
  residues_.resize(block_count());
  for (std::size_t k = 0; k < block_count(); ++k) {
    std::size_t rest = k;
    std::size_t length = block_count();
    std::size_t place = 0;
    for (const int radix : radices) {
      const auto count = static_cast<std::size_t>(radix);
      length /= count;
      place += rest % count * length;
      rest /= count;
    }
    places_[k] = static_cast<std::uint32_t>(place);
    residues_[place] = static_cast<std::uint32_t>(k);
  }
}

std::shared_ptr<const Fft> Fft::find_or_make_cached(std::size_t size) {
  QKSCOPE_ASSERT(std::has_single_bit(size) && size >= 128);
  static std::mutex mutex;
  static std::map<std::size_t, std::shared_ptr<const Fft>> made;
  const std::lock_guard lock(mutex);
  auto& slot = made[size];
  if (!slot) slot.reset(new Fft(size));
  return slot;
}

void Fft::transform_in_place(std::span<FourComplex> signal, const BlockRangeCallback& done) const {
  QKSCOPE_ASSERT(signal.size() == size_ / 4);
  QKSCOPE_DISPATCH(apply_fft_stages)(signal.data(), 0, signal.size(), tables_, 0, done);
}

}  // namespace qkscope
#endif
