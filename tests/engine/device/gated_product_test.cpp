#include <cmath>

#include <gtest/gtest.h>

#include "base/numerics/random.h"
#include "device_buffer.h"
#include "engine/device/cuda/pass_kernels.h"
#include "engine/device/cuda/products/products.h"

namespace qkscope {
namespace {

struct Size {
  std::int64_t rows;
  std::int64_t in;
  std::int64_t n;
};

ModelConfig model_of(const Size& size) {
  ModelConfig model;
  model.d_model = size.in;
  model.d_mlp = size.n;
  model.names.gate = "gate";
  model.activation = Activation::silu;
  return model;
}

std::vector<float> drawn(std::int64_t count, std::uint64_t seed, float scale) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (auto& value : values) value = scale * static_cast<float>(random.normal());
  return values;
}

class GatedProduct : public GpuTest<testing::TestWithParam<DType>> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (!cuda::supports_gated_gemm(model_of({1, 64, 64}), GetParam(), 0))
      GTEST_SKIP() << "this GPU is none of the Hopper generation, or CUTLASS was not there";
  }

  // Rows and weights of a size, and what the product makes of them.
  struct Case {
    Case(const Size& given, DType type)
        : size(given),
          dtype(type),
          x(encoded(drawn(size.rows * size.in, 1, 1.0f), type)),
          weight(encoded(
              drawn(2 * size.n * size.in, 2, 1.5f / std::sqrt(static_cast<float>(size.in))), type)),
          on_device(x),
          plain(weight),
          interleaved(weight.size()) {
      cuda::interleave_gate_up(plain.get(), interleaved.get(), size.n, size.in, nullptr);
    }
    std::vector<std::byte> multiply(bool apart) const {
      DeviceBuffer y(static_cast<std::size_t>(size.rows * size.n * (apart ? 2 : 1)) *
                     dtype_size(dtype));
      y.poison();
      cuda::run_gated_gemm({.x = on_device.get(),
                            .weight = interleaved.get(),
                            .y = y.get(),
                            .rows = size.rows,
                            .in = size.in,
                            .n = size.n,
                            .apart = apart,
                            .bf16 = dtype == DType::bf16},
                           nullptr);
      return y.download<std::byte>();
    }

    Size size;
    DType dtype;
    std::vector<std::byte> x;
    std::vector<std::byte> weight;
    DeviceBuffer on_device;
    DeviceBuffer plain;
    DeviceBuffer interleaved;
  };
};

// Rows and columns that end inside a tile of 128 by 96, and one row alone.
const std::vector<Size> kSizes = {{1, 64, 32}, {127, 64, 96}, {300, 136, 416}, {129, 2048, 1024}};

TEST_P(GatedProduct, GateAndUpApartAreTheProductsOfTheirWeights) {
  for (const auto& size : kSizes) {
    SCOPED_TRACE(std::to_string(size.rows) + " rows, " + std::to_string(size.n) + " wide");
    const Case c(size, GetParam());
    const auto x = decoded(c.x, GetParam());
    const auto weight = decoded(c.weight, GetParam());
    const auto y = decoded(c.multiply(true), GetParam());
    // One rounding to the type; sums of up to 2,048 float32 products are far closer.
    const double bound = GetParam() == DType::bf16 ? 0x1p-8 : 0x1p-11;
    for (std::int64_t row = 0; row < size.rows; row += 7)
      for (std::int64_t column = 0; column < 2 * size.n; ++column) {
        double sum = 0.0;
        for (std::int64_t i = 0; i < size.in; ++i)
          sum += static_cast<double>(x[static_cast<std::size_t>(row * size.in + i)]) *
                 weight[static_cast<std::size_t>(column * size.in + i)];
        ASSERT_NEAR(y[static_cast<std::size_t>(row * 2 * size.n + column)], sum,
                    bound * std::abs(sum) + 1e-4)
            << "row " << row << ", column " << column;
      }
  }
}

TEST_P(GatedProduct, HasTheBitsOfTheGateAppliedLater) {
  for (const auto& size : kSizes) {
    SCOPED_TRACE(std::to_string(size.rows) + " rows, " + std::to_string(size.n) + " wide");
    const Case c(size, GetParam());
    const auto apart = c.multiply(true);
    const DeviceBuffer gate_up(apart);
    DeviceBuffer y(apart.size() / 2);
    cuda::apply_gate({.activation = Activation::silu,
                      .gate_up = gate_up.get(),
                      .y = y.get(),
                      .rows = size.rows,
                      .n = size.n,
                      .dtype = GetParam()},
                     nullptr);
    EXPECT_EQ(c.multiply(false), y.download<std::byte>());
  }
}

TEST_P(GatedProduct, ARowHasItsBitsWhateverRowsRunWithIt) {
  const Case all({300, 136, 416}, GetParam());
  const auto whole = all.multiply(false);
  Case alone({300, 136, 416}, GetParam());
  alone.size.rows = 133;
  const auto part = alone.multiply(false);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin()));
}

TEST_P(GatedProduct, ServesGatedSiluOfEvenWidthsAlone) {
  const auto serves = [&](auto change) {
    auto model = model_of({1, 64, 64});
    change(model);
    return cuda::supports_gated_gemm(model, GetParam(), 0);
  };
  EXPECT_TRUE(serves([](ModelConfig&) {}));
  EXPECT_FALSE(serves([](ModelConfig& m) { m.activation = Activation::gelu; }));
  EXPECT_FALSE(serves([](ModelConfig& m) { m.mlp_bias = true; }));
  EXPECT_FALSE(serves([](ModelConfig& m) { m.d_mlp = 48; }));
  EXPECT_FALSE(serves([](ModelConfig& m) { m.d_model = 60; }));
  EXPECT_FALSE(cuda::supports_gated_gemm(model_of({1, 64, 64}), DType::f32, 0));
}

INSTANTIATE_TEST_SUITE_P(Types, GatedProduct, testing::Values(DType::bf16, DType::f16),
                         [](const auto& given) { return std::string(dtype_name(given.param)); });

}  // namespace
}  // namespace qkscope
