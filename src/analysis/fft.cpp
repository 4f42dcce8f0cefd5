#include "analysis/fft.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace qkscope {
namespace {

struct Twiddle {
  float re;
  float im;
};

// One pass of Stockham's radix-4 transform: butterflies of four values `quarter` apart, results
// `stride` apart, so that the order comes out right without bit reversal.
struct Pass {
  std::size_t count;   // butterflies per value of the stride: length of this level / 4
  std::size_t stride;  // transforms interleaved
  std::size_t step;    // between the twiddles of this level in the full table

  void run(const ComplexSignal& in, ComplexSignal& out, const float* cosine,
           const float* sine) const {
    const std::size_t quarter = count * stride;
    for (std::size_t j = 0; j < count; ++j) {
      const Twiddle w1{cosine[j * step], sine[j * step]};
      const Twiddle w2{cosine[2 * j * step], sine[2 * j * step]};
      const Twiddle w3{cosine[3 * j * step], sine[3 * j * step]};
      const float* const xr = in.re.data() + j * stride;
      const float* const xi = in.im.data() + j * stride;
      float* const yr = out.re.data() + 4 * j * stride;
      float* const yi = out.im.data() + 4 * j * stride;
      butterflies({xr, xi, yr, yi, quarter}, w1, w2, w3);
    }
  }

 private:
  struct Lines {
    const float* __restrict xr;
    const float* __restrict xi;
    float* __restrict yr;
    float* __restrict yi;
    std::size_t quarter;
  };

  void butterflies(const Lines& at, Twiddle w1, Twiddle w2, Twiddle w3) const {
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

  static void store(const Lines& at, std::size_t k, float re, float im, Twiddle w) {
    at.yr[k] = re * w.re - im * w.im;
    at.yi[k] = re * w.im + im * w.re;
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
  QKSCOPE_ASSERT(std::has_single_bit(size));
  for (std::size_t k = 0; k < size; ++k) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(size);
    cosine_[k] = static_cast<float>(std::cos(angle));
    sine_[k] = static_cast<float>(-std::sin(angle));
  }
}

void Fft::forward(ComplexSignal& signal, ComplexSignal& scratch) const {
  QKSCOPE_ASSERT(signal.size() == size_ && scratch.size() == size_);
  std::size_t length = size_;
  std::size_t stride = 1;
  for (; length >= 4; length /= 4, stride *= 4) {
    Pass{length / 4, stride, stride}.run(signal, scratch, cosine_.data(), sine_.data());
    std::swap(signal, scratch);
  }
  if (length == 2) {
    last_radix_two(signal, scratch);
    std::swap(signal, scratch);
  }
}

}  // namespace qkscope
