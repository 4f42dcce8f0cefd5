// A complex Fourier transform of four signals at a time, in single precision, for sizes that are
// powers of two: it finds where a spectrum is high; what is found is then computed in float64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace qkscope {

// One number of each of four signals: a vector register of every CPU we know.
using FourFloats = float __attribute__((vector_size(16)));

// One complex value of each of four signals.
struct FourComplex {
  FourFloats re;
  FourFloats im;
};

struct Twiddle {
  float re;
  float im;
};

class Fft {
 public:
  // Tables for a size (a power of two, 64 or more); made once per size and program.
  static std::shared_ptr<const Fft> of_size(std::size_t size);

  std::size_t size() const { return size_; }
  // In place. The sum over n of signal[n] exp(-2 pi i k n / size) is left at signal[place(k)]: the
  // order in which no pass has to move values around.
  void forward(std::span<FourComplex> signal) const;
  std::size_t place(std::size_t k) const { return places_[k / 8] + k % 8 * (size_ / 8); }

 private:
  explicit Fft(std::size_t size);

  std::size_t size_;
  std::vector<std::vector<Twiddle>> twiddles_;  // per level of length n: (n / 8, 7)
  std::vector<std::uint32_t> places_;           // (size / 8): of every eighth value
};

}  // namespace qkscope
