#include "numerics/fft.h"

#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>

#include "core/cpu_target.h"
#include "core/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/fft.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Four = hn::CappedTag<float, 4>;
using Vector = hn::Vec<Four>;
using Levels = std::vector<std::vector<Twiddle>>;  // per level of length n: (n / 8, 7)

// Blocks of this length stay in the first cache: all their passes run one after the other.
constexpr std::size_t kCached = 1024;

// A FourComplex in registers.
struct Complex {
  Vector re;
  Vector im;

  // Not the compiler's: GCC makes those for the lowest target.
  HWY_INLINE Complex() {}
  HWY_INLINE Complex(Vector real, Vector imaginary) : re(real), im(imaginary) {}

  HWY_INLINE Complex operator+(const Complex& other) const {
    return {hn::Add(re, other.re), hn::Add(im, other.im)};
  }
  HWY_INLINE Complex operator-(const Complex& other) const {
    return {hn::Sub(re, other.re), hn::Sub(im, other.im)};
  }
  HWY_INLINE Complex times_minus_i() const { return {im, hn::Neg(re)}; }
  HWY_INLINE Complex turned(Twiddle by) const {
    const Vector x = hn::Set(Four(), by.re);
    const Vector y = hn::Set(Four(), by.im);
    return {hn::MulSub(re, x, hn::Mul(im, y)), hn::MulAdd(re, y, hn::Mul(im, x))};
  }
};

HWY_INLINE Complex load(const FourComplex& from) {
  const float* const at = reinterpret_cast<const float*>(&from);
  return {hn::Load(Four(), at), hn::Load(Four(), at + 4)};
}

HWY_INLINE void store(const Complex& value, FourComplex& to) {
  float* const at = reinterpret_cast<float*>(&to);
  hn::Store(value.re, Four(), at);
  hn::Store(value.im, Four(), at + 4);
}

// The transform of four values.
HWY_INLINE void four_point(Complex& a, Complex& b, Complex& c, Complex& d) {
  const auto ac = a + c;
  const auto am = a - c;
  const auto bd = b + d;
  const auto bm = (b - d).times_minus_i();
  a = ac + bd;
  b = am + bm;
  c = ac - bd;
  d = am - bm;
}

// The transform of eight values `apart` from one another.
HWY_INLINE void eight_point(const FourComplex* from, std::size_t apart, Complex (&y)[8]) {
  Complex x[8];
#pragma GCC unroll 8
  for (std::size_t m = 0; m < 8; ++m) x[m] = load(from[m * apart]);
  four_point(x[0], x[2], x[4], x[6]);
  four_point(x[1], x[3], x[5], x[7]);
  // Odd results times exp(-i pi m / 4).
  const Vector root = hn::Set(Four(), std::numbers::sqrt2_v<float> / 2);
  x[3] = {hn::Mul(root, hn::Add(x[3].re, x[3].im)), hn::Mul(root, hn::Sub(x[3].im, x[3].re))};
  x[5] = x[5].times_minus_i();
  x[7] = {hn::Mul(root, hn::Sub(x[7].im, x[7].re)),
          hn::Mul(hn::Neg(root), hn::Add(x[7].re, x[7].im))};
#pragma GCC unroll 4
  for (std::size_t m = 0; m < 4; ++m) {
    y[m] = x[2 * m] + x[2 * m + 1];
    y[m + 4] = x[2 * m] - x[2 * m + 1];
  }
}

// Butterflies of eight values an eighth of `length` apart.
void pass(FourComplex* signal, std::size_t length, const Twiddle* w) {
  const std::size_t eighth = length / 8;
  w += 7;
  Complex y[8];
  eight_point(signal, eighth, y);  // the first is not turned
#pragma GCC unroll 8
  for (std::size_t r = 0; r < 8; ++r) store(y[r], signal[r * eighth]);
  for (std::size_t j = 1; j < eighth; ++j, w += 7) {
    eight_point(signal + j, eighth, y);
    store(y[0], signal[j]);
#pragma GCC unroll 7
    for (std::size_t r = 1; r < 8; ++r) store(y[r].turned(w[r - 1]), signal[j + r * eighth]);
  }
}

// What is left when the size is not a power of eight: blocks of four or two, without twiddles.
void last_pass(FourComplex* signal, std::size_t size, std::size_t length) {
  if (length == 4)
    for (std::size_t i = 0; i < size; i += 4) {
      Complex x[4] = {load(signal[i]), load(signal[i + 1]), load(signal[i + 2]),
                      load(signal[i + 3])};
      four_point(x[0], x[1], x[2], x[3]);
      for (std::size_t m = 0; m < 4; ++m) store(x[m], signal[i + m]);
    }
  if (length == 2)
    for (std::size_t i = 0; i < size; i += 2) {
      const auto a = load(signal[i]);
      const auto b = load(signal[i + 1]);
      store(a + b, signal[i]);
      store(a - b, signal[i + 1]);
    }
}

void transform(FourComplex* signal, std::size_t length, const Levels& twiddles, std::size_t level) {
  if (length > kCached) {
    pass(signal, length, twiddles[level].data());
    for (std::size_t r = 0; r < 8; ++r)
      transform(signal + r * (length / 8), length / 8, twiddles, level + 1);
    return;
  }
  std::size_t part = length;
  for (; part >= 8; part /= 8, ++level)
    for (std::size_t at = 0; at < length; at += part)
      pass(signal + at, part, twiddles[level].data());
  last_pass(signal, length, part);
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

HWY_EXPORT(transform);

}  // namespace

Fft::Fft(std::size_t size) : size_(size) {
  for (std::size_t length = size; length >= 8; length /= 8) {
    auto& level = twiddles_.emplace_back();
    for (std::size_t j = 0; j < length / 8; ++j)
      for (std::size_t r = 1; r < 8; ++r) {
        const double angle =
            2 * std::numbers::pi * static_cast<double>(r * j) / static_cast<double>(length);
        level.push_back(
            {static_cast<float>(std::cos(angle)), static_cast<float>(-std::sin(angle))});
      }
  }
  // Each pass puts values whose number leaves the same rest modulo 8 side by side.
  for (std::size_t k = 0; k < size; k += 8) {
    std::size_t rest = k;
    std::size_t length = size;
    std::size_t place = 0;
    for (; length >= 8; rest /= 8) {
      length /= 8;
      place += rest % 8 * length;
    }
    places_.push_back(static_cast<std::uint32_t>(place + rest));
  }
}

std::shared_ptr<const Fft> Fft::of_size(std::size_t size) {
  QKSCOPE_ASSERT(std::has_single_bit(size) && size >= 64);
  static std::mutex mutex;
  static std::map<std::size_t, std::shared_ptr<const Fft>> made;
  const std::lock_guard lock(mutex);
  auto& slot = made[size];
  if (!slot) slot.reset(new Fft(size));
  return slot;
}

void Fft::forward(std::span<FourComplex> signal) const {
  QKSCOPE_ASSERT(signal.size() == size_);
  QKSCOPE_DISPATCH(transform)(signal.data(), size_, twiddles_, 0);
}

}  // namespace qkscope
#endif
