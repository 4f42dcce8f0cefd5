// Python's random.Random, as far as the choice of heads needs it, to the bit.
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
  // random.sample(range(n), k): k different numbers below n, in the order Python draws them.
  std::vector<std::uint32_t> sample(std::uint32_t n, std::uint32_t k);

 private:
  std::mt19937 engine_;
};

}  // namespace qkscope
