#include "ops/elementwise.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "cpu_targets.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

class Elementwise : public EachCpuTarget {};

TEST_P(Elementwise, NormMatchesTheFormulaAlsoInPlace) {
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

TEST_P(Elementwise, GatesMatchTheFormulas) {
  const auto gate = random_tensor({40, 50}, 3, 4.0f);
  const auto up = random_tensor({40, 50}, 4);
  Tensor out(gate.shape());
  const auto check = [&](Activation activation, auto formula) {
    gated_activation(activation, gate, up, out);
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

TEST_P(Elementwise, AddCapAndScale) {
  auto a = random_tensor({5, 7}, 5, 20.0f);
  const auto b = random_tensor({5, 7}, 6);
  auto sum = rounded(a, DType::f32);
  add_to(sum, b);
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
    EXPECT_FLOAT_EQ(q.data<float>()[i],
                    static_cast<float>(1.0 + 0.5 * std::log(1.0 + position / 2)));
  }
}

TEST_P(Elementwise, EmbeddingTakesRowsAndScales) {
  const auto table = rounded(random_tensor({6, 4}, 7), DType::bf16);
  const std::vector<std::int32_t> ids = {5, 0, 5};
  Tensor y({3, 4});
  embed(ids, {table, 1.0f}, 2.0f, y);
  for (int row = 0; row < 3; ++row)
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(y.data<float>()[row * 4 + i],
                2.0f * to_float(table.data<Bf16>()[ids[static_cast<std::size_t>(row)] * 4 + i]));
}

QKSCOPE_EACH_CPU_TARGET(Elementwise);

}  // namespace
}  // namespace qkscope
