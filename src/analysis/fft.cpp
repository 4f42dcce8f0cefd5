#include "analysis/fft.h"

#include <bit>
#include <cmath>
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

struct Lines {
  const float* __restrict xr;
  const float* __restrict xi;
  float* __restrict yr;
  float* __restrict yi;
  std::size_t quarter;
};

inline void store(const Lines& at, std::size_t k, float re, float im, Twiddle w) {
  at.yr[k] = re * w.re - im * w.im;
  at.yi[k] = re * w.im + im * w.re;
}

// `stride` butterflies with the same twiddles; a constant stride lets the compiler unroll.
inline void butterflies(const Lines& at, std::size_t stride, Twiddle w1, Twiddle w2, Twiddle w3) {
  for (std::size_t k = 0; k < stride; ++k) {
    const float ar = at.xr[k];
    const float ai = at.xi[k];
    const float br = at.xr[k + at.quarter];
    const float bi = at.xi[k + at.quarter];
    const float cr = at.xr[k + 2 * at.quarter];
    const float ci = at.xi[k + 2 * at.quarter];
    const float dr = at.xr[k + 3 * at.quarter];
    const float di = at.xi[k + 3 * at.quarter];
    const float acr = ar + cr;
    const float aci = ai + ci;
    const float bdr = br + dr;
    const float bdi = bi + di;
    const float amr = ar - cr;
    const float ami = ai - ci;
    const float bmr = bi - di;  // -i (b - d)
    const float bmi = dr - br;
    at.yr[k] = acr + bdr;
    at.yi[k] = aci + bdi;
    store(at, k + stride, amr + bmr, ami + bmi, w1);
    store(at, k + 2 * stride, acr - bdr, aci - bdi, w2);
    store(at, k + 3 * stride, amr - bmr, ami - bmi, w3);
  }
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
        butterflies(at, 4, w1, w2, w3);
      } else {
        butterflies(at, stride, w1, w2, w3);
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
  QKSCOPE_ASSERT(std::has_single_bit(size) && size >= 4);
  static std::mutex mutex;
  static std::map<std::size_t, std::shared_ptr<const Fft>> made;
  const std::lock_guard lock(mutex);
  auto& slot = made[size];
  if (!slot) slot.reset(new Fft(size));
  return slot;
}

// The pass with stride 1 on a signal whose second half is zero: runs along j, so that it is vector
// code although its results interleave.
void Fft::first_pass(const ComplexSignal& in, ComplexSignal& out) const {
  const std::size_t quarter = size_ / 4;
  const float* __restrict xr = in.re.data();
  const float* __restrict xi = in.im.data();
  float* __restrict yr = out.re.data();
  float* __restrict yi = out.im.data();
  const float* __restrict w1r = first_[0].data();
  const float* __restrict w1i = first_[1].data();
  const float* __restrict w2r = first_[2].data();
  const float* __restrict w2i = first_[3].data();
  const float* __restrict w3r = first_[4].data();
  const float* __restrict w3i = first_[5].data();
  for (std::size_t j = 0; j < quarter; ++j) {
    const float ar = xr[j];
    const float ai = xi[j];
    const float br = xr[j + quarter];
    const float bi = xi[j + quarter];
    const float pr = ar + bi;  // a - i b
    const float pi = ai - br;
    const float mr = ar - br;
    const float mi = ai - bi;
    const float nr = ar - bi;  // a + i b
    const float ni = ai + br;
    yr[4 * j] = ar + br;
    yi[4 * j] = ai + bi;
    yr[4 * j + 1] = pr * w1r[j] - pi * w1i[j];
    yi[4 * j + 1] = pr * w1i[j] + pi * w1r[j];
    yr[4 * j + 2] = mr * w2r[j] - mi * w2i[j];
    yi[4 * j + 2] = mr * w2i[j] + mi * w2r[j];
    yr[4 * j + 3] = nr * w3r[j] - ni * w3i[j];
    yi[4 * j + 3] = nr * w3i[j] + ni * w3r[j];
  }
}

void Fft::forward_padded(ComplexSignal& signal, ComplexSignal& scratch) const {
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
