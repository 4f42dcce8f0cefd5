#include "engine/ops/row_kernels.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "cpu_targets.h"
#include "engine/ops/key_kernels.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

class RowKernels : public EachCpuTarget {};

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> range(float first, float last, float step) {
  std::vector<float> values;
  for (float x = first; x < last; x += step) values.push_back(x);
  return values;
}

// Distance of `value` from `exact` in ULP of float32.
double ulp_error(float value, double exact) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::abs(value - exact) / unit;
}

// exp(score - lse) with a log-sum-exp of 0 is exp(score).
TEST_P(RowKernels, ExpHasAtMostTwoUlpError) {
  const auto x = range(-87.0f, 88.0f, 0.0037f);
  auto y = x;
  keys::compute_attention_weights(y.data(), std::ssize(y), keys::HighLowLogSumExp(0.0), y.data());
  double worst = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, ulp_error(y[i], std::exp(static_cast<double>(x[i]))));
  EXPECT_LT(worst, 2.0);

  std::vector<float> special = {0.0f, -kInfinity, -1000.0f, 1000.0f, kNan};
  keys::compute_attention_weights(special.data(), std::ssize(special), keys::HighLowLogSumExp(0.0),
                                  special.data());
  EXPECT_EQ(special[0], 1.0f);
  EXPECT_EQ(special[1], 0.0f);
  EXPECT_EQ(special[2], 0.0f);
  EXPECT_GT(special[3], 1e38f);
  EXPECT_TRUE(std::isnan(special[4]));
}

// A soft cap of 1 is tanh, computed in float64 and rounded once.
TEST_P(RowKernels, SoftCapIsTanhRoundedFromFloat64) {
  auto x = range(-11.0f, 11.0f, 0.00071f);
  for (float small = 1e-30f; small < 1.0f; small *= 1.7f) x.push_back(small);
  auto y = x;
  rows::soft_cap(y.data(), std::ssize(y), 1.0f);
  double worst = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] != 0.0f)
      worst = std::max(worst, ulp_error(y[i], std::tanh(static_cast<double>(x[i]))));
  EXPECT_LT(worst, 0.51);

  std::vector<float> special = {0.0f, kInfinity, -kInfinity, kNan};
  rows::soft_cap(special.data(), 4, 1.0f);
  EXPECT_EQ(special[0], 0.0f);
  EXPECT_EQ(special[1], 1.0f);
  EXPECT_EQ(special[2], -1.0f);
  EXPECT_TRUE(std::isnan(special[3]));
}

// gelu(x) / x = (1 + erf(x / sqrt 2)) / 2 in float32, from an erf that is rounded once.
// One token against the formula in float64.
TEST_P(RowKernels, DeltaRuleStepAgreesWithPlainLoops) {
  constexpr std::int64_t kRows = 37;
  constexpr auto kColumns = rows::kStateColumns;
  auto state = random_tensor({kRows, kColumns}, 1);
  const auto before = random_tensor({kRows, kColumns}, 1);
  const auto q = random_tensor({kRows}, 2, 0.2f);
  const auto k = random_tensor({kRows}, 3, 0.2f);
  const auto v = random_tensor({kColumns}, 4);
  auto decays = random_tensor({kRows}, 5);
  for (std::int64_t i = 0; i < kRows; ++i)
    decays.data<float>()[i] = std::abs(std::sin(decays.data<float>()[i]));
  std::vector<float> output(kColumns);
  rows::apply_delta_rule(
      {q.data<float>(), k.data<float>(), decays.data<float>(), v.data<float>(), 0.7f, kRows},
      state.data<float>(), output.data());
  for (std::int64_t j = 0; j < kColumns; ++j) {
    const auto decayed = [&](std::int64_t i) {
      return static_cast<double>(before.data<float>()[i * kColumns + j]) * decays.data<float>()[i];
    };
    double predicted = 0.0;
    for (std::int64_t i = 0; i < kRows; ++i) predicted += decayed(i) * k.data<float>()[i];
    const double written = static_cast<double>(0.7f) * (v.data<float>()[j] - predicted);
    double read = 0.0;
    for (std::int64_t i = 0; i < kRows; ++i) {
      const double expected = decayed(i) + k.data<float>()[i] * written;
      EXPECT_NEAR(state.data<float>()[i * kColumns + j], expected, 2e-6);
      read += expected * q.data<float>()[i];
    }
    EXPECT_NEAR(output[static_cast<std::size_t>(j)], read, 4e-6);
  }
}

TEST_P(RowKernels, GeluUsesAnAccurateErf) {
  const auto x = range(-7.0f, 7.0f, 0.00053f);
  const std::vector<float> ones(x.size(), 1.0f);
  std::vector<float> y(x.size());
  rows::apply_gate({Activation::gelu}, x.data(), ones.data(), std::ssize(x), y.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto inner = static_cast<double>(x[i] * 0.7071067811865476f);
    const float expected = 0.5f * x[i] * (1.0f + static_cast<float>(std::erf(inner)));
    EXPECT_NEAR(y[i], expected, std::abs(x[i]) * 0x1p-23f) << x[i];
  }
}

// Sums of small integers are exact in any order.
TEST_P(RowKernels, SumsAndSoftmaxCoverEveryElement) {
  for (const std::int64_t count : {0, 1, 15, 16, 17, 31, 100}) {
    std::vector<float> x(static_cast<std::size_t>(count));
    std::iota(x.begin(), x.end(), 0.0f);
    const std::vector<float> ones(x.size(), 1.0f);
    float sum = 0.0f;
    rows::dot_products({x.data(), ones.data(), count, 1, count}, 2.0f, &sum);
    EXPECT_EQ(sum, static_cast<float>(count * (count - 1)));
    if (count == 0) continue;
    std::vector<float> pattern(x.size());
    rows::softmax(ones.data(), count, pattern.data());
    for (const float weight : pattern) EXPECT_EQ(weight, 1.0f / static_cast<float>(count));
  }
}

// Memory beyond a row stays unchanged for every vector width.
TEST_P(RowKernels, NothingBeyondTheRowIsWritten) {
  const auto y = random_tensor({40}, 1);
  for (std::int64_t count = 0; count <= 33; ++count) {
    auto x = random_tensor({40}, 2);
    const auto before = rounded(x, DType::f32);
    float* values = x.data<float>();
    rows::add_scaled(values, y.data<float>(), count, 1.0f);
    rows::scale(values, count, 2.0f);
    rows::add_scaled(values, y.data<float>(), count, -2.0f);
    rows::apply_gate({Activation::silu}, values, values, count, values);
    rows::soft_cap(values, count, 5.0f);
    rows::rotate(values, y.data<float>(), y.data<float>(), count / 2, false);
    rows::rotate(values, y.data<float>(), y.data<float>(), count / 2, true);
    for (std::int64_t i = count; i < 40; ++i) EXPECT_EQ(values[i], before.data<float>()[i]);
  }
}

QKSCOPE_EACH_CPU_TARGET(RowKernels);

}  // namespace
}  // namespace qkscope
