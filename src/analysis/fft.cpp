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

// Four or eight floats that the compiler keeps in vector registers.
using Four = float __attribute__((vector_size(16)));
using Eight = float __attribute__((vector_size(32)));

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
  std::size_t quarter;
};

template <typename Vector>
inline void store_turned(const Lines& at, std::size_t k, const Vector& re, const Vector& im,
                         Twiddle w) {
  store<Vector>(at.yr + k, re * w.re - im * w.im);
  store<Vector>(at.yi + k, re * w.im + im * w.re);
}

// `stride` butterflies with the same twiddles, a vector at a time.
template <typename Vector>
inline void butterflies(const Lines& at, std::size_t stride, Twiddle w1, Twiddle w2, Twiddle w3) {
  constexpr std::size_t kWidth = sizeof(Vector) / sizeof(float);
  for (std::size_t k = 0; k < stride; k += kWidth) {
    const auto ar = load<Vector>(at.xr + k);
    const auto ai = load<Vector>(at.xi + k);
    const auto br = load<Vector>(at.xr + k + at.quarter);
    const auto bi = load<Vector>(at.xi + k + at.quarter);
    const auto cr = load<Vector>(at.xr + k + 2 * at.quarter);
    const auto ci = load<Vector>(at.xi + k + 2 * at.quarter);
    const auto dr = load<Vector>(at.xr + k + 3 * at.quarter);
    const auto di = load<Vector>(at.xi + k + 3 * at.quarter);
    const Vector acr = ar + cr;
    const Vector aci = ai + ci;
    const Vector bdr = br + dr;
    const Vector bdi = bi + di;
    const Vector amr = ar - cr;
    const Vector ami = ai - ci;
    const Vector bmr = bi - di;  // -i (b - d)
    const Vector bmi = dr - br;
    store<Vector>(at.yr + k, acr + bdr);
    store<Vector>(at.yi + k, aci + bdi);
    store_turned<Vector>(at, k + stride, amr + bmr, ami + bmi, w1);
    store_turned<Vector>(at, k + 2 * stride, acr - bdr, aci - bdi, w2);
    store_turned<Vector>(at, k + 3 * stride, amr - bmr, ami - bmi, w3);
  }
}

// Stores four vectors as the columns of a 4 x 4 block: row i holds element i of each.
inline void store_columns(float* to, const Four& a, const Four& b, const Four& c, const Four& d) {
  using Index = int __attribute__((vector_size(16)));
  const Four ab_low = __builtin_shuffle(a, b, Index{0, 4, 1, 5});
  const Four ab_high = __builtin_shuffle(a, b, Index{2, 6, 3, 7});
  const Four cd_low = __builtin_shuffle(c, d, Index{0, 4, 1, 5});
  const Four cd_high = __builtin_shuffle(c, d, Index{2, 6, 3, 7});
  store<Four>(to, __builtin_shuffle(ab_low, cd_low, Index{0, 1, 4, 5}));
  store<Four>(to + 4, __builtin_shuffle(ab_low, cd_low, Index{2, 3, 6, 7}));
  store<Four>(to + 8, __builtin_shuffle(ab_high, cd_high, Index{0, 1, 4, 5}));
  store<Four>(to + 12, __builtin_shuffle(ab_high, cd_high, Index{2, 3, 6, 7}));
}

// One pass of Stockham's radix-4 transform: butterflies of four values a quarter apart, results
// `stride` apart, so that the order comes out right without bit reversal.
struct Pass {
  std::size_t count;   // butterflies per value of the stride: length of this level / 4
  std::size_t stride;  // transforms interleaved; also the step between this level's twiddles

  void run(const ComplexSignal& in, ComplexSignal& out, const float* cosine,
           const float* sine) const {
    for (std::size_t j = 0; j < count; ++j) {
      const Twiddle w1{cosine[j * stride], sine[j * stride]};
      const Twiddle w2{cosine[2 * j * stride], sine[2 * j * stride]};
      const Twiddle w3{cosine[3 * j * stride], sine[3 * j * stride]};
      const Lines at{in.re.data() + j * stride, in.im.data() + j * stride,
                     out.re.data() + 4 * j * stride, out.im.data() + 4 * j * stride,
                     count * stride};
      if (stride == 4) {
        butterflies<Four>(at, 4, w1, w2, w3);
      } else {
        butterflies<Eight>(at, stride, w1, w2, w3);
      }
    }
  }
};

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
  for (; length >= 4; length /= 4, stride *= 4) {
    Pass{length / 4, stride}.run(signal, scratch, cosine_.data(), sine_.data());
    std::swap(signal, scratch);
  }
  if (length == 2) {
    last_radix_two(signal, scratch);
    std::swap(signal, scratch);
  }
}

}  // namespace qkscope
