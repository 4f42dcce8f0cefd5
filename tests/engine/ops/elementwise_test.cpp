#include "engine/ops/elementwise.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "cpu_targets.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

class Elementwise : public EachCpuTarget {};

Tensor tensor_of_nan() {
  Tensor tensor({1});
  tensor.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  return tensor;
}

TEST_P(Elementwise, RmsNormMatchesFloat64AlsoInPlace) {
  auto x = random_tensor({33, 70}, 1, 3.0f);
  const auto weight = random_tensor({70}, 2);
  const std::span<const float> w(weight.data<float>(), 70);
  Tensor y(x.shape());
  rms_norm(x, w, 1e-5, y);
  for (std::int64_t row = 0; row < 33; ++row) {
    const float* in = x.data<float>() + row * 70;
    double squares = 0.0;
    for (int i = 0; i < 70; ++i) squares += static_cast<double>(in[i]) * in[i];
    for (int i = 0; i < 70; ++i)
      EXPECT_NEAR(y.data<float>()[row * 70 + i],
                  in[i] / std::sqrt(squares / 70 + 1e-5) * w[static_cast<std::size_t>(i)], 2e-6);
  }
  rms_norm(x, w, 1e-5, x);
  EXPECT_EQ(std::memcmp(x.view().bytes(), y.view().bytes(), y.view().size_bytes()), 0);
}

// Values far from 0, where a one-pass variance would cancel.
TEST_P(Elementwise, LayerNormMatchesFloat64AlsoInPlace) {
  auto x = random_tensor({33, 70}, 1, 3.0f);
  for (std::int64_t i = 0; i < x.size(); ++i) x.data<float>()[i] += 100.0f;
  const auto weight = random_tensor({70}, 2);
  const auto bias = random_tensor({70}, 3);
  const NormWeights norm{{weight.data<float>(), weight.data<float>() + 70},
                         {bias.data<float>(), bias.data<float>() + 70}};
  Tensor y(x.shape());
  Tensor without_bias(x.shape());
  apply_norm(NormKind::layer, x, norm, 1e-5, y);
  apply_norm(NormKind::layer, x, {norm.weight, {}}, 1e-5, without_bias);
  for (std::int64_t row = 0; row < 33; ++row) {
    const float* in = x.data<float>() + row * 70;
    double mean = 0.0;
    for (int i = 0; i < 70; ++i) mean += in[i] / 70.0;
    double squares = 0.0;
    for (int i = 0; i < 70; ++i) squares += (in[i] - mean) * (in[i] - mean);
    for (std::size_t i = 0; i < 70; ++i) {
      const auto at = row * 70 + static_cast<std::int64_t>(i);
      const double expected = (in[i] - mean) / std::sqrt(squares / 70 + 1e-5) * norm.weight[i];
      // The float32 mean of values near 100 has an error of about 1e-5.
      EXPECT_NEAR(y.data<float>()[at], expected + norm.bias[i], 3e-5);
      EXPECT_NEAR(without_bias.data<float>()[at], expected, 3e-5);
    }
  }
  apply_norm(NormKind::layer, x, norm, 1e-5, x);
  EXPECT_EQ(std::memcmp(x.view().bytes(), y.view().bytes(), y.view().size_bytes()), 0);
}

TEST_P(Elementwise, UngatedActivationsMatchFloat64) {
  const XieluWeights weights{.alpha_p = 0.8f, .alpha_n = 1.3f, .beta = 0.5f, .eps = -1e-6f};
  const auto check = [&](Activation activation, auto formula) {
    const auto x = random_tensor({40, 51}, 3, 4.0f);
    auto y = rounded(x, DType::f32);  // a copy
    apply_activation(activation, weights, y);
    for (std::int64_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(y.data<float>()[i], formula(static_cast<double>(x.data<float>()[i])),
                  2e-7 * (1.0 + x.data<float>()[i] * x.data<float>()[i]))
          << x.data<float>()[i];
  };
  check(Activation::silu, [](double x) { return x / (1.0 + std::exp(-x)); });
  check(Activation::gelu, [](double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); });
  check(Activation::gelu_tanh, [](double x) {
    return 0.5 * x * (1.0 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  });
  check(Activation::xielu, [](double x) {
    return x > 0.0 ? 0.8 * x * x + 0.5 * x : 1.3 * (std::expm1(std::min(x, -1e-6)) - x) + 0.5 * x;
  });
}

TEST_P(Elementwise, XieluHandlesInfinityAndNan) {
  const XieluWeights weights{.alpha_p = 0.8f, .alpha_n = 1.3f, .beta = 0.5f, .eps = -1e-6f};
  Tensor x({5});
  const float values[] = {0.0f, -1e-7f, -1e4f, 1e4f, -std::numeric_limits<float>::quiet_NaN()};
  std::copy(std::begin(values), std::end(values), x.data<float>());
  apply_activation(Activation::xielu, weights, x);
  EXPECT_NEAR(x.data<float>()[0], 1.3 * std::expm1(-1e-6), 1e-12);
  EXPECT_NEAR(x.data<float>()[1], 1.3 * (std::expm1(-1e-6) + 1e-7) - 0.5e-7, 1e-12);
  EXPECT_FLOAT_EQ(x.data<float>()[2], 1.3f * (1e4f - 1.0f) - 0.5e4f);
  EXPECT_FLOAT_EQ(x.data<float>()[3], 0.8e8f + 0.5e4f);
  EXPECT_TRUE(std::isnan(x.data<float>()[4]));
}

TEST_P(Elementwise, ClipLimitsMagnitudesAndKeepsSmallerValues) {
  const auto x = random_tensor({5, 7}, 8, 3.0f);
  auto clipped = rounded(x, DType::f32);  // a copy
  clip(clipped, 2.0);
  for (std::int64_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(clipped.data<float>()[i], std::min(std::max(x.data<float>()[i], -2.0f), 2.0f));
}

TEST_P(Elementwise, PositionEmbeddingsRestartWithEachSequence) {
  const auto table = random_tensor({4, 3}, 9);
  const std::vector<Sequence> sequences = {{0, 2}, {2, 4}};
  Tensor y({6, 3});
  embed_positions(sequences, {table, 1.0f}, y);
  const std::int64_t positions[] = {0, 1, 0, 1, 2, 3};
  for (std::int64_t row = 0; row < 6; ++row)
    for (std::int64_t i = 0; i < 3; ++i)
      EXPECT_EQ(y.data<float>()[row * 3 + i], table.data<float>()[positions[row] * 3 + i]);
}

TEST_P(Elementwise, GatedActivationsMatchFloat64) {
  const auto gate = random_tensor({40, 50}, 3, 4.0f);
  const auto up = random_tensor({40, 50}, 4);
  Tensor out(gate.shape());
  const auto check = [&](Activation activation, auto formula) {
    apply_gated_activation({activation}, gate, up, out);
    for (std::int64_t i = 0; i < out.size(); ++i) {
      const double x = gate.data<float>()[i];
      EXPECT_NEAR(out.data<float>()[i], formula(x) * up.data<float>()[i], 4e-6) << x;
    }
  };
  check(Activation::silu, [](double x) { return x / (1.0 + std::exp(-x)); });
  check(Activation::gelu, [](double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); });
  check(Activation::gelu_tanh, [](double x) {
    return 0.5 * x * (1.0 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  });
}

TEST_P(Elementwise, ClampedSwigluMatchesFloat64) {
  const auto gate = random_tensor({40, 50}, 3, 4.0f);
  const auto up = random_tensor({40, 50}, 4, 4.0f);
  Tensor out(gate.shape());
  apply_gated_activation({Activation::clamped_swiglu, {.alpha = 1.702f, .limit = 3.0f}}, gate, up,
                         out);
  for (std::int64_t i = 0; i < out.size(); ++i) {
    const double g = std::min(gate.data<float>()[i], 3.0f);
    const double u = std::min(std::max(up.data<float>()[i], -3.0f), 3.0f);
    EXPECT_NEAR(out.data<float>()[i], (u + 1.0) * g / (1.0 + std::exp(-1.702 * g)), 4e-6) << g;
  }
  auto broken = tensor_of_nan();
  apply_gated_activation({Activation::clamped_swiglu}, broken, broken, broken);
  EXPECT_TRUE(std::isnan(broken.data<float>()[0]));
}

TEST_P(Elementwise, AddSoftCapAndScaleMatchFloat64) {
  auto a = random_tensor({5, 7}, 5, 20.0f);
  const auto b = random_tensor({5, 7}, 6);
  auto sum = rounded(a, DType::f32);
  add_in_place(sum, b);
  soft_cap(a, 10.0);
  for (std::int64_t i = 0; i < 35; ++i) EXPECT_LE(std::abs(a.data<float>()[i]), 10.0f);
  EXPECT_FLOAT_EQ(sum.data<float>()[3],
                  random_tensor({5, 7}, 5, 20.0f).data<float>()[3] + b.data<float>()[3]);

  Tensor q({8, 1, 1});
  for (int i = 0; i < 8; ++i) q.data<float>()[i] = 1.0f;
  const std::vector<Sequence> sequences = {{0, 5}, {5, 3}};
  scale_queries(q, {.beta = 0.5, .original_max = 2}, sequences);
  for (int i = 0; i < 8; ++i) {
    const int position = i < 5 ? i : i - 5;
    const int times = position / 2;  // that the first context fits
    EXPECT_FLOAT_EQ(q.data<float>()[i], static_cast<float>(1.0 + 0.5 * std::log(1.0 + times)));
  }
}

TEST_P(Elementwise, EmbeddingCopiesScaledRows) {
  const auto table = rounded(random_tensor({6, 4}, 7), DType::bf16);
  const std::vector<std::int32_t> ids = {5, 0, 5};
  Tensor y({3, 4});
  embed_tokens(ids, {table, 1.0f}, 2.0f, y);
  for (int row = 0; row < 3; ++row)
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(y.data<float>()[row * 4 + i],
                2.0f * to_float(table.data<Bf16>()[ids[static_cast<std::size_t>(row)] * 4 + i]));
}

QKSCOPE_EACH_CPU_TARGET(Elementwise);

}  // namespace
}  // namespace qkscope
