// Random number generators that produce the same sequence on every machine: SplitMix64, and
// bit-exact replicas of Python's random.Random and PyTorch's CPU generator.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <span>
#include <vector>

namespace qkscope {

// Finalizer of SplitMix64.
constexpr std::uint64_t splitmix64(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next_uint64() { return splitmix64(state_ += 0x9E3779B97F4A7C15u); }

  double uniform() { return static_cast<double>(next_uint64() >> 11) * 0x1p-53; }  // [0, 1)

  // Uniform in [0, bound), as the high half of a 128-bit product; bias < 2^-40 for bound < 2^24.
  std::uint64_t next_below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(next_uint64()) * bound) >> 64);
  }

  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

  // Fills the span with standard normal random numbers (Box-Muller, two per pair of uniforms).
  void fill_normal(std::span<double> numbers) {
    for (std::size_t i = 0; i < numbers.size(); i += 2) {
      const double radius = std::sqrt(-2 * std::log(1 - uniform()));
      const double angle = 2 * std::numbers::pi * uniform();
      numbers[i] = radius * std::cos(angle);
      if (i + 1 < numbers.size()) numbers[i + 1] = radius * std::sin(angle);
    }
  }

  // Returns a chi-squared random number with `degrees` >= 2 degrees of freedom (Marsaglia, Tsang).
  double chi_squared(double degrees) {
    const double d = 0.5 * degrees - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = normal();
      const double root = 1 + c * x;
      if (root <= 0) continue;
      const double v = root * root * root;
      if (std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return 2 * d * v;
    }
  }

 private:
  std::uint64_t state_;
};

class PythonRandom {
 public:
  explicit PythonRandom(std::int64_t seed);

  std::uint32_t getrandbits(int bits);       // 1 to 32 bits
  std::uint32_t randbelow(std::uint32_t n);  // in [0, n), n > 0
  // Returns random.sample(range(n), k), in the same order as Python.
  std::vector<std::uint32_t> sample(std::uint32_t n, std::uint32_t k);

 private:
  std::mt19937 engine_;
};

// torch.rand of a CPU generator: MT19937 seeded with the low 32 bits of the seed, 24 bits per draw.
class TorchRandom {
 public:
  explicit TorchRandom(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

  float operator()() {
    return static_cast<float>(static_cast<std::uint32_t>(engine_()) & 0xFFFFFFu) * 0x1p-24f;
  }

 private:
  std::mt19937 engine_;
};

}  // namespace qkscope
