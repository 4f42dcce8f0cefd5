#include "analysis/fft.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <numbers>
#include <utility>

#include "core/error.h"

namespace qkscope {
namespace {

struct Twiddle {
  float re;
  float im;
};

// Four floats that the compiler keeps in a vector register.
using Four = float __attribute__((vector_size(16)));

template <typename Vector>
inline Vector load(const float* from) {
  Vector value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename Vector>
inline void store(float* to, const Vector& value) {
  std::memcpy(to, &value, sizeof value);
}

struct Lines {
  const float* xr;
  const float* xi;
  float* yr;
  float* yi;
  std::size_t apart;  // inputs of one butterfly
};

template <typename Vector>
inline void store_turned(const Lines& at, std::size_t k, const Vector& re, const Vector& im,
                         Twiddle w) {
  store<Vector>(at.yr + k, re * w.re - im * w.im);
  store<Vector>(at.yi + k, re * w.im + im * w.re);
}

// A complex number per lane.
template <typename Vector>
struct Complex {
  Vector re;
  Vector im;

  Complex operator+(const Complex& other) const { return {re + other.re, im + other.im}; }
  Complex operator-(const Complex& other) const { return {re - other.re, im - other.im}; }
  Complex times_minus_i() const { return {im, -re}; }
};

// The transform of four values.
template <typename Vector>
inline void four_point(Complex<Vector>& a, Complex<Vector>& b, Complex<Vector>& c,
                       Complex<Vector>& d) {
  const auto ac = a + c;
  const auto am = a - c;
  const auto bd = b + d;
  const auto bm = (b - d).times_minus_i();
  a = ac + bd;
  b = am + bm;
  c = ac - bd;
  d = am - bm;
}

// One radix-8 pass of Stockham's transform: butterflies of eight values an eighth apart, results
// `stride` apart, so that the order comes out right without bit reversal.
struct EightPass {
  std::size_t count;   // length of this level / 8
  std::size_t stride;  // transforms interleaved, a multiple of four; also the step between twiddles

  void run(const ComplexSignal& in, ComplexSignal& out, const float* cosine,
           const float* sine) const {
    const std::size_t eighth = count * stride;
    for (std::size_t j = 0; j < count; ++j) {
      Twiddle w[8];
      for (std::size_t m = 1; m < 8; ++m) w[m] = {cosine[m * j * stride], sine[m * j * stride]};
      for (std::size_t k = 0; k < stride; k += 4)
        butterfly({in.re.data() + j * stride + k, in.im.data() + j * stride + k,
                   out.re.data() + 8 * j * stride + k, out.im.data() + 8 * j * stride + k, eighth},
                  w);
    }
  }

 private:
  void butterfly(const Lines& at, const Twiddle (&w)[8]) const {
    Complex<Four> x[8];
#pragma GCC unroll 8
    for (std::size_t m = 0; m < 8; ++m)
      x[m] = {load<Four>(at.xr + m * at.apart), load<Four>(at.xi + m * at.apart)};
    four_point(x[0], x[2], x[4], x[6]);
    four_point(x[1], x[3], x[5], x[7]);
    // Odd results times exp(-i pi m / 4).
    constexpr float kRoot = std::numbers::sqrt2_v<float> / 2;
    const Complex<Four> turned[4] = {x[1],
                                     {kRoot * (x[3].re + x[3].im), kRoot * (x[3].im - x[3].re)},
                                     x[5].times_minus_i(),
                                     {kRoot * (x[7].im - x[7].re), -kRoot * (x[7].re + x[7].im)}};
    const Complex<Four> even[4] = {x[0], x[2], x[4], x[6]};
#pragma GCC unroll 4
    for (std::size_t m = 0; m < 4; ++m) {
      put(at, m, even[m] + turned[m], w[m]);
      put(at, m + 4, even[m] - turned[m], w[m + 4]);
    }
  }

  void put(const Lines& at, std::size_t m, const Complex<Four>& value, Twiddle w) const {
    if (m == 0) {
      store<Four>(at.yr, value.re);
      store<Four>(at.yi, value.im);
      return;
    }
    store_turned<Four>(at, m * stride, value.re, value.im, w);
  }
};

// Stores four vectors as the columns of a 4 x 4 block: row i holds element i of each.
inline void store_columns(float* to, const Four& a, const Four& b, const Four& c, const Four& d) {
  const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  store<Four>(to, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
  store<Four>(to + 4, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
  store<Four>(to + 8, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
  store<Four>(to + 12, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
}

// What is left when the length is not a power of eight: one level of four or of two, without
// twiddles.
void last_radix_four(const ComplexSignal& in, ComplexSignal& out) {
  const std::size_t quarter = in.size() / 4;
  for (std::size_t k = 0; k < quarter; k += 4) {
    Complex<Four> x[4];
    for (std::size_t m = 0; m < 4; ++m)
      x[m] = {load<Four>(in.re.data() + k + m * quarter),
              load<Four>(in.im.data() + k + m * quarter)};
    four_point(x[0], x[1], x[2], x[3]);
    for (std::size_t m = 0; m < 4; ++m) {
      store<Four>(out.re.data() + k + m * quarter, x[m].re);
      store<Four>(out.im.data() + k + m * quarter, x[m].im);
    }
  }
}

void last_radix_two(const ComplexSignal& in, ComplexSignal& out) {
  const std::size_t half = in.size() / 2;
  for (std::size_t k = 0; k < half; ++k) {
    out.re[k] = in.re[k] + in.re[k + half];
    out.im[k] = in.im[k] + in.im[k + half];
    out.re[k + half] = in.re[k] - in.re[k + half];
    out.im[k + half] = in.im[k] - in.im[k + half];
  }
}

}  // namespace

Fft::Fft(std::size_t size) : size_(size), cosine_(size), sine_(size) {
  for (std::size_t k = 0; k < size; ++k) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(size);
    cosine_[k] = static_cast<float>(std::cos(angle));
    sine_[k] = static_cast<float>(-std::sin(angle));
  }
  for (std::size_t j = 0; j < size / 4; ++j)
    for (std::size_t m = 1; m <= 3; ++m) {
      first_[2 * m - 2].push_back(cosine_[m * j]);
      first_[2 * m - 1].push_back(sine_[m * j]);
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

// The pass with stride 1 takes four butterflies at a time; their results interleave.
void Fft::first_pass(const ComplexSignal& in, ComplexSignal& out) const {
  const std::size_t quarter = size_ / 4;
  for (std::size_t j = 0; j < quarter; j += 4) {
    const float* const xr = in.re.data() + j;
    const float* const xi = in.im.data() + j;
    const Four acr = load<Four>(xr) + load<Four>(xr + 2 * quarter);
    const Four aci = load<Four>(xi) + load<Four>(xi + 2 * quarter);
    const Four amr = load<Four>(xr) - load<Four>(xr + 2 * quarter);
    const Four ami = load<Four>(xi) - load<Four>(xi + 2 * quarter);
    const Four bdr = load<Four>(xr + quarter) + load<Four>(xr + 3 * quarter);
    const Four bdi = load<Four>(xi + quarter) + load<Four>(xi + 3 * quarter);
    const Four bmr = load<Four>(xi + quarter) - load<Four>(xi + 3 * quarter);  // -i (b - d)
    const Four bmi = load<Four>(xr + 3 * quarter) - load<Four>(xr + quarter);
    const Four re[3] = {amr + bmr, acr - bdr, amr - bmr};
    const Four im[3] = {ami + bmi, aci - bdi, ami - bmi};
    Four turned_re[3];
    Four turned_im[3];
    for (std::size_t m = 0; m < 3; ++m) {
      const auto wr = load<Four>(first_[2 * m].data() + j);
      const auto wi = load<Four>(first_[2 * m + 1].data() + j);
      turned_re[m] = re[m] * wr - im[m] * wi;
      turned_im[m] = re[m] * wi + im[m] * wr;
    }
    store_columns(out.re.data() + 4 * j, acr + bdr, turned_re[0], turned_re[1], turned_re[2]);
    store_columns(out.im.data() + 4 * j, aci + bdi, turned_im[0], turned_im[1], turned_im[2]);
  }
}

void Fft::forward(ComplexSignal& signal, ComplexSignal& scratch) const {
  QKSCOPE_ASSERT(signal.size() == size_ && scratch.size() == size_);
  first_pass(signal, scratch);
  std::swap(signal, scratch);
  std::size_t length = size_ / 4;
  std::size_t stride = 4;
  for (; length >= 8; length /= 8, stride *= 8) {
    EightPass{length / 8, stride}.run(signal, scratch, cosine_.data(), sine_.data());
    std::swap(signal, scratch);
  }
  if (length == 4) {
    last_radix_four(signal, scratch);
    std::swap(signal, scratch);
  }
  if (length == 2) {
    last_radix_two(signal, scratch);
    std::swap(signal, scratch);
  }
}

}  // namespace qkscope
