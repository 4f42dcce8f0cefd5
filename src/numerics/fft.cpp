#include "numerics/fft.h"

#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>

#include "core/error.h"

namespace qkscope {
namespace {

// Blocks of this length stay in the first cache: all their passes run one after the other.
constexpr std::size_t kCached = 1024;

// The transform of four values.
inline void four_point(FourComplex& a, FourComplex& b, FourComplex& c, FourComplex& d) {
  const auto ac = a + c;
  const auto am = a - c;
  const auto bd = b + d;
  const auto bm = (b - d).times_minus_i();
  a = ac + bd;
  b = am + bm;
  c = ac - bd;
  d = am - bm;
}

// The transform of eight values `apart` from one another, in place.
inline void eight_point(const FourComplex* from, std::size_t apart, FourComplex (&y)[8]) {
  FourComplex x[8];
#pragma GCC unroll 8
  for (std::size_t m = 0; m < 8; ++m) x[m] = from[m * apart];
  four_point(x[0], x[2], x[4], x[6]);
  four_point(x[1], x[3], x[5], x[7]);
  // Odd results times exp(-i pi m / 4).
  constexpr float kRoot = std::numbers::sqrt2_v<float> / 2;
  x[3] = {kRoot * (x[3].re + x[3].im), kRoot * (x[3].im - x[3].re)};
  x[5] = x[5].times_minus_i();
  x[7] = {kRoot * (x[7].im - x[7].re), -kRoot * (x[7].re + x[7].im)};
#pragma GCC unroll 4
  for (std::size_t m = 0; m < 4; ++m) {
    y[m] = x[2 * m] + x[2 * m + 1];
    y[m + 4] = x[2 * m] - x[2 * m + 1];
  }
}

// What is left when the size is not a power of eight: blocks of four or two, without twiddles.
void last_pass(FourComplex* signal, std::size_t size, std::size_t length) {
  if (length == 4)
    for (std::size_t i = 0; i < size; i += 4)
      four_point(signal[i], signal[i + 1], signal[i + 2], signal[i + 3]);
  if (length == 2)
    for (std::size_t i = 0; i < size; i += 2) {
      const auto sum = signal[i] + signal[i + 1];
      signal[i + 1] = signal[i] - signal[i + 1];
      signal[i] = sum;
    }
}

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

// Butterflies of eight values an eighth of `length` apart.
void Fft::pass(FourComplex* signal, std::size_t length, std::size_t level) const {
  const std::size_t eighth = length / 8;
  const Twiddle* w = twiddles_[level].data() + 7;
  FourComplex y[8];
  eight_point(signal, eighth, y);  // the first is not turned
#pragma GCC unroll 8
  for (std::size_t r = 0; r < 8; ++r) signal[r * eighth] = y[r];
  for (std::size_t j = 1; j < eighth; ++j, w += 7) {
    eight_point(signal + j, eighth, y);
    signal[j] = y[0];
#pragma GCC unroll 7
    for (std::size_t r = 1; r < 8; ++r) signal[j + r * eighth] = turned(y[r], w[r - 1]);
  }
}

void Fft::transform(FourComplex* signal, std::size_t length, std::size_t level) const {
  if (length > kCached) {
    pass(signal, length, level);
    for (std::size_t r = 0; r < 8; ++r) transform(signal + r * (length / 8), length / 8, level + 1);
    return;
  }
  std::size_t part = length;
  for (; part >= 8; part /= 8, ++level)
    for (std::size_t at = 0; at < length; at += part) pass(signal + at, part, level);
  last_pass(signal, length, part);
}

void Fft::forward(std::span<FourComplex> signal) const {
  QKSCOPE_ASSERT(signal.size() == size_);
  transform(signal.data(), size_, 0);
}

}  // namespace qkscope
