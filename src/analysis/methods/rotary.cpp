#include "analysis/methods/rotary.h"

#include <cmath>

namespace qkscope {

void rotate_back(const RotaryEmbedding& rope, std::int64_t position,
                 std::span<const std::span<double>> vectors) {
  for (std::size_t p = 0; p < rope.pairs(); ++p) {
    const double angle = static_cast<double>(position) * rope.inv_freq[p];
    const double cosine = std::cos(angle);
    const double sine = std::sin(angle);
    const auto [real, imaginary] = rope.dimensions(p);
    for (const auto& x : vectors) {
      const double turned = cosine * x[real] + sine * x[imaginary];
      x[imaginary] = cosine * x[imaginary] - sine * x[real];
      x[real] = turned;
    }
  }
}

}  // namespace qkscope
