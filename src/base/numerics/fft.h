// A complex Fourier transform in single precision, for sizes that are powers of two: it finds where
// a spectrum is high; what is found is then computed in float64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace qkscope {

// A vector register of every CPU we know.
using FourFloats = float __attribute__((vector_size(16)));

// Four values of a signal. Aligned for CPUs that take both parts as one vector.
struct alignas(32) FourComplex {
  FourFloats re;
  FourFloats im;
};

struct Twiddle {
  float re;
  float im;
};

// What a transform multiplies with. `length` counts vectors of four neighbouring values.
struct FftTables {
  // Passes over more than a part, first to last: the same factors for all four values of a vector.
  std::vector<int> radices;                    // of these passes
  std::vector<std::vector<Twiddle>> wide;      // per pass: (length / radix, radix - 1)
  std::size_t part = 0;                        // length of what stays in the first cache
  std::vector<std::vector<FourComplex>> deep;  // per pass over a part, radix 8: (length / 8, 7)
  std::vector<FourComplex> last;               // (parts, 3): before neighbours are put together
};

class Fft {
 public:
  static constexpr std::size_t kBlock = 16;  // frequencies

  // Tables for a size (a power of two, 128 or more); made once per size and program.
  static std::shared_ptr<const Fft> of_size(std::size_t size);

  std::size_t size() const { return size_; }
  std::size_t blocks() const { return size_ / kBlock; }
  // Called with the blocks [begin, end) when they are done: all blocks in order, a few at a time,
  // while they are in the first cache.
  using Done = std::function<void(std::size_t begin, std::size_t end)>;
  // In place, four values per vector. Sums over n of signal[n] exp(-2 pi i k n / size) are left in
  // blocks of four vectors: block place(k % blocks()) holds number k / blocks() of its sixteen. In
  // this order no pass has to move values around.
  void forward(std::span<FourComplex> signal, const Done& done = nullptr) const;
  std::size_t place(std::size_t rest) const { return places_[rest]; }
  // Where the sum for k is left.
  struct Found {
    std::size_t vector;
    std::size_t lane;
  };
  Found find(std::size_t k) const {
    const auto number = k >> block_bits_;
    return {4 * place(k & (blocks() - 1)) + number / 4, number % 4};
  }
  // The rest that place() takes there.
  std::span<const std::uint32_t> rests() const { return rests_; }

 private:
  explicit Fft(std::size_t size);
  void add_places(std::span<const int> radices);

  std::size_t size_;
  int block_bits_;  // blocks() is a power of two
  FftTables tables_;
  std::vector<std::uint32_t> places_;  // (blocks)
  std::vector<std::uint32_t> rests_;   // (blocks)
};

}  // namespace qkscope
