#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include <gtest/gtest.h>

#include "cpu_targets.h"
#include "engine/ops/elementwise.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

class Rotary : public EachCpuTarget {};

RopeConfig rope(std::int64_t dim) {
  RopeConfig config;
  config.dim = dim;
  config.theta = 10000.0;
  config.max_positions = 64;
  return config;
}

// Reference: complex product in float64, for both pairings and partial heads.
TEST_P(Rotary, RotatesPairsByPositionTimesFrequency) {
  const std::vector<Sequence> sequences = {{0, 40}, {40, 9}};
  for (const bool interleaved : {false, true})
    for (const std::int64_t dim : {8, 6}) {
      const auto config = rope(dim);
      const auto before = random_tensor({49, 3, 8}, 1);
      auto x = rounded(before, DType::f32);
      apply_rotary(rotary_table(config, sequences), interleaved, x);
      const auto inverse = rope_frequencies(config, 40).inverse;
      for (std::int64_t row = 0; row < 49; ++row)
        for (std::int64_t head = 0; head < 3; ++head) {
          const float* in = before.data<float>() + (row * 3 + head) * 8;
          const float* out = x.data<float>() + (row * 3 + head) * 8;
          const auto position = static_cast<double>(row < 40 ? row : row - 40);
          for (std::int64_t i = 0; i < dim / 2; ++i) {
            const auto a = interleaved ? 2 * i : i;
            const auto b = interleaved ? 2 * i + 1 : i + dim / 2;
            const double angle = position * inverse[static_cast<std::size_t>(i)];
            EXPECT_NEAR(out[a], in[a] * std::cos(angle) - in[b] * std::sin(angle), 1e-5);
            EXPECT_NEAR(out[b], in[b] * std::cos(angle) + in[a] * std::sin(angle), 1e-5);
          }
          EXPECT_EQ(
              std::memcmp(in + dim, out + dim, static_cast<std::size_t>(8 - dim) * sizeof(float)),
              0);
        }
    }
}

TEST_P(Rotary, RotationMayBeginWithinTheHead) {
  const std::vector<Sequence> sequences = {{0, 20}};
  const auto table = rotary_table(rope(6), sequences);
  for (const bool interleaved : {false, true}) {
    const auto before = random_tensor({20, 3, 10}, 1);
    auto x = rounded(before, DType::f32);
    apply_rotary(table, interleaved, x, 4);
    Tensor last({20, 3, 6});
    for (std::int64_t i = 0; i < 60; ++i)
      std::copy_n(before.data<float>() + i * 10 + 4, 6, last.data<float>() + i * 6);
    apply_rotary(table, interleaved, last);
    const auto bytes = [](const Tensor& tensor, std::int64_t at, std::size_t count) {
      return std::as_bytes(std::span(tensor.data<float>() + at, count));
    };
    for (std::int64_t i = 0; i < 60; ++i) {
      EXPECT_TRUE(std::ranges::equal(bytes(x, i * 10, 4), bytes(before, i * 10, 4)));
      EXPECT_TRUE(std::ranges::equal(bytes(x, i * 10 + 4, 6), bytes(last, i * 6, 6)));
    }
  }
}

TEST_P(Rotary, InterleavedPairsCanBeSortedIntoHalves) {
  const auto before = random_tensor({7, 3, 11}, 1);
  auto x = rounded(before, DType::f32);
  deinterleave_rotary_pairs(x, 4, 6);
  const std::int64_t source[] = {0, 1, 2, 3, 4, 6, 8, 5, 7, 9, 10};
  for (std::int64_t head = 0; head < 21; ++head)
    for (std::int64_t i = 0; i < 11; ++i)
      EXPECT_EQ(x.data<float>()[head * 11 + i], before.data<float>()[head * 11 + source[i]]);
}

TEST_P(Rotary, DotProductsDependOnTheDistanceOnly) {
  const std::vector<Sequence> sequences = {{0, 200}};
  const auto table = rotary_table(rope(16), sequences);
  Tensor x({200, 1, 16});
  const auto vector = random_tensor({16}, 5);
  for (std::int64_t row = 0; row < 200; ++row)
    std::memcpy(x.data<float>() + row * 16, vector.data<float>(), 16 * sizeof(float));
  apply_rotary(table, false, x);
  const auto product = [&](std::int64_t a, std::int64_t b) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < 16; ++i)
      sum += static_cast<double>(x.data<float>()[a * 16 + i]) * x.data<float>()[b * 16 + i];
    return sum;
  };
  for (const std::int64_t distance : {0, 1, 17, 90})
    for (const std::int64_t first : {1, 50, 109})
      EXPECT_NEAR(product(0, distance), product(first, first + distance), 1e-4);
}

// The table holds cos and sin of the float32 angle, computed in float64 and rounded once.
TEST_P(Rotary, TableIsRoundedOnceFromFloat64) {
  auto config = rope(64);
  config.theta = 1e6;
  const std::vector<Sequence> sequences = {{0, 70000}};
  const auto table = rotary_table(config, sequences);
  const auto inverse = rope_frequencies(config, 70000).inverse;
  for (std::int64_t position = 0; position < 70000; position += position < 100 ? 1 : 997)
    for (std::int64_t i = 0; i < 32; ++i) {
      const float angle = static_cast<float>(position) * inverse[static_cast<std::size_t>(i)];
      const auto at = position * 32 + i;
      EXPECT_EQ(table.cos.data<float>()[at],
                static_cast<float>(std::cos(static_cast<double>(angle))));
      EXPECT_EQ(table.sin.data<float>()[at],
                static_cast<float>(std::sin(static_cast<double>(angle))));
    }
}

QKSCOPE_EACH_CPU_TARGET(Rotary);

}  // namespace
}  // namespace qkscope
