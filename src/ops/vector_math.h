// Functions on floats that the compiler can turn into vector code inside a loop.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace qkscope {

// exp(x) within 2 units in the last place for x in [-87, 88]; exactly 0 below -87.5 (also for
// -infinity), very large or infinite above 88; NaN stays NaN.
inline float exp_approx(float x) {
  constexpr float kLog2e = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer
  constexpr float kLowest = -87.5f;
  const float above = x > kLowest ? x : kLowest;
  const float within = above < 88.0f ? above : 88.0f;
  const float shifted = within * kLog2e + kRound;
  const float whole = shifted - kRound;
  const float r = (x - whole * kLn2High) - whole * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^whole by its exponent bits: the low bits of `shifted` hold the integer.
  const float power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127u) << 23);
  return x < kLowest ? 0.0f : p * power;
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

// The largest of `start` and f(0) ... f(count - 1).
template <typename F>
float lane_max(std::int64_t count, float start, F f) {
  constexpr int kLanes = 16;
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, start);
  const auto take = [&](int lane, float value) {
    lanes[lane] = lanes[lane] < value ? value : lanes[lane];
  };
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) take(lane, f(i + lane));
  for (int lane = 0; i + lane < count; ++lane) take(lane, f(i + lane));
  return *std::max_element(lanes, lanes + kLanes);
}

}  // namespace qkscope
