// Complex single-precision FFT for powers of two. It locates peaks of a spectrum; their values are
// then recomputed in float64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace qkscope {

using FourFloats = float __attribute__((vector_size(16)));

struct alignas(32) FourComplex {
  FourFloats re;
  FourFloats im;
};

struct Twiddle {
  float re;
  float im;
};

// Twiddle factors of all FFT passes; `length` in the shapes below counts FourComplex vectors.
struct FftTables {
  // Wide FFT passes combine values of different parts (cache-sized segments) of the signal. The
  // four values of a vector share their twiddle factors.
  std::vector<int> radices;                // per wide pass
  std::vector<std::vector<Twiddle>> wide;  // per wide pass: (length / radix, radix - 1)
  std::size_t part = 0;                    // vectors per part; a part fits into the L1 cache
  // Deep FFT passes have radix 8 and work within one cache-sized part of the signal.
  std::vector<std::vector<FourComplex>> deep;  // per deep pass: (length / 8, 7)
  std::vector<FourComplex> last;               // (parts, 3): last pass, over the lanes of vectors
};

class Fft {
 public:
  static constexpr std::size_t kBlock = 16;  // output frequencies per block

  // Returns the cached transform of the given size, a power of two and at least 128.
  static std::shared_ptr<const Fft> cached_of_size(std::size_t size);

  std::size_t size() const { return size_; }
  std::size_t block_count() const { return size_ / kBlock; }
  // Callback that receives consecutive ranges [begin, end) of finished output blocks as soon as
  // they are computed, while they are still in the L1 cache.
  using BlockRangeCallback = std::function<void(std::size_t begin, std::size_t end)>;
  // Transforms `signal` in place: X[k] = sum over n of signal[n] exp(-2 pi i k n / size). The
  // output is in digit-reversed order, which avoids a reordering pass: block_index(k %
  // block_count()) holds X[k] as number k / block_count() of its 16 values.
  void forward(std::span<FourComplex> signal, const BlockRangeCallback& done = nullptr) const;
  std::size_t block_index(std::size_t rest) const { return places_[rest]; }
  // Location of the output value X[k] in the array of vectors.
  struct OutputPosition {
    std::size_t vector;
    std::size_t lane;
  };
  OutputPosition locate_frequency(std::size_t k) const {
    const auto number = k >> block_bits_;
    return {4 * block_index(k & (block_count() - 1)) + number / 4, number % 4};
  }
  // Inverse of block_index(): block_residues()[block_index(r)] == r.
  std::span<const std::uint32_t> block_residues() const { return residues_; }

 private:
  explicit Fft(std::size_t size);
  void set_block_indices(std::span<const int> radices);

  std::size_t size_;
  int block_bits_;  // block_count() is a power of two
  FftTables tables_;
  std::vector<std::uint32_t> places_;    // (blocks)
  std::vector<std::uint32_t> residues_;  // (blocks)
};

}  // namespace qkscope
