// Bit-exact replicas of Python's random.Random and PyTorch's CPU generator.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace qkscope {

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
class TorchUniform {
 public:
  explicit TorchUniform(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

  float operator()() {
    return static_cast<float>(static_cast<std::uint32_t>(engine_()) & 0xFFFFFFu) * 0x1p-24f;
  }

 private:
  std::mt19937 engine_;
};

}  // namespace qkscope
