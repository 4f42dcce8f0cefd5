// Functions on floats that the compiler can turn into vector code inside a loop.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace qkscope {

// exp(x) within 2 units in the last place for x in [-87, 88]; below that 0 or nearly, above it the
// largest values. -infinity gives exactly 0.
inline float exp_approx(float x) {
  constexpr float kLog2e = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer
  const float clamped = std::min(std::max(x, -87.5f), 88.5f);
  const float shifted = clamped * kLog2e + kRound;
  const float whole = shifted - kRound;
  const float r = (clamped - whole * kLn2High) - whole * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^whole by its exponent bits, in two halves so that the ends of the range stay normal.
  const auto exponent =
      static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - 0x4b400000u);
  const std::int32_t half = exponent >> 1;
  const auto power = [](std::int32_t e) { return std::bit_cast<float>((e + 127) << 23); };
  const float value = p * power(half) * power(exponent - half);
  return x < -87.5f ? 0.0f : value;
}

// The sum of f(0) ... f(count - 1) in 16 interleaved lanes: fixed order, vector speed.
template <typename F>
float lane_sum(std::int64_t count, F f) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += f(i + lane);
  for (int lane = 0; i + lane < count; ++lane) lanes[lane] += f(i + lane);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}

}  // namespace qkscope
