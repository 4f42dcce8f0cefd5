// Rotary position embedding (RoPE) of one layer, applied to single vectors.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace qkscope {

// Dimension pair p of a vector is rotated by position * inv_freq[p] radians. Dimensions outside the
// pairs are not rotated. A layer without RoPE has no pairs.
struct RotaryEmbedding {
  std::vector<double> inv_freq;   // (pairs), in the order of the pairs
  bool interleaved = false;       // pair p is (2p, 2p + 1) instead of (p, p + pairs)
  double attention_factor = 1.0;  // multiplies rotated dimensions of queries and of keys (YaRN)
  std::size_t begin = 0;          // first dimension of the pairs

  std::size_t pairs() const { return inv_freq.size(); }
  // Returns the two dimensions of pair p, the real and the imaginary part of a complex number.
  std::pair<std::size_t, std::size_t> dimensions(std::size_t p) const {
    return interleaved ? std::pair(begin + 2 * p, begin + 2 * p + 1)
                       : std::pair(begin + p, begin + p + pairs());
  }
};

// Rotates each vector by -position * inv_freq, which undoes RoPE at `position`. The vectors share
// sines and cosines.
inline void rotate_back(const RotaryEmbedding& rope, std::int64_t position,
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
