// A complex Fourier transform in single precision for sizes that are powers of two: it finds where
// a spectrum is high; what is found is then computed in float64.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace qkscope {

// Real and imaginary parts apart, so that loops over them are vector code.
struct ComplexSignal {
  std::vector<float> re;
  std::vector<float> im;

  explicit ComplexSignal(std::size_t size = 0) : re(size), im(size) {}
  std::size_t size() const { return re.size(); }
};

class Fft {
 public:
  // Tables for a size (a power of two, 64 or more); made once per size and program.
  static std::shared_ptr<const Fft> of_size(std::size_t size);

  std::size_t size() const { return size_; }
  // signal[k] becomes the sum over n of signal[n] exp(-2 pi i k n / size). `scratch` has the same
  // size and is overwritten.
  void forward(ComplexSignal& signal, ComplexSignal& scratch) const;

 private:
  explicit Fft(std::size_t size);
  void first_pass(const ComplexSignal& in, ComplexSignal& out) const;

  std::size_t size_;
  std::vector<float> cosine_;    // (size): cos(2 pi k / size)
  std::vector<float> sine_;      // (size): -sin(2 pi k / size)
  std::vector<float> first_[6];  // (size / 4): re and im of the first pass's three twiddles
};

}  // namespace qkscope
