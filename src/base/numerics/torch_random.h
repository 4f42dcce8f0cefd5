// PyTorch's random numbers, bit for bit.
#pragma once

#include <cstdint>
#include <random>

namespace qkscope {

// torch.rand of a CPU generator: MT19937 seeded with the low 32 bits, 24 bits of each draw.
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
