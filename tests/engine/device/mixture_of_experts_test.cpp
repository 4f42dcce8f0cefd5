// Products of experts on the GPU: one launch for all groups of rows against one product per group,
// and the whole mixture against the same with one expert at a time. Needs an NVIDIA GPU.
#include "engine/device/cuda/products/mixture_of_experts.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "base/numerics/random.h"
#include "device_buffer.h"
#include "engine/device/cuda/pass_kernels.h"
#include "engine/device/cuda/products/products.h"

namespace qkscope {
namespace {

std::vector<float> normal_values(std::int64_t count, std::uint64_t seed, float scale) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (auto& value : values) value = scale * static_cast<float>(random.normal());
  return values;
}

ModelConfig mixture_model() {
  ModelConfig model;
  model.d_model = 192;
  model.activation = Activation::silu;
  model.names.gate = "gate";
  model.experts = {.count = 7, .per_token = 3, .d_mlp = 96};
  return model;
}

// Experts of one matrix and an activation, without a gate.
ModelConfig ungated_mixture_model() {
  auto model = mixture_model();
  model.activation = Activation::relu2;
  model.names.gate = "";
  model.experts.d_mlp = 128;
  return model;
}

// Matrices (out, in) and biases of some experts, plain and with interleaved rows.
struct ExpertMatrices {
  ExpertMatrices(std::int64_t experts, std::int64_t out, std::int64_t in, DType dtype, bool bias)
      : plain(encoded(normal_values(experts * (out * in + kBias * out), 3,
                                    1.0f / std::sqrt(static_cast<float>(in))),
                      dtype)),
        interleaved(plain.download<std::byte>()),
        stride(out * in + kBias * out) {
    const auto size = static_cast<std::int64_t>(dtype_size(dtype));
    for (std::int64_t e = 0; e < experts; ++e) {
      const auto at = e * stride * size;
      if (size == 2)
        cuda::interleave_gate_up(plain.get<std::byte>() + at, interleaved.get<std::byte>() + at,
                                 out / 2, in, nullptr);
      const auto linear = [&](const DeviceBuffer& buffer) {
        auto* weight = buffer.get<std::byte>() + at;
        return cuda::DeviceLinear{.weight = weight,
                                  .bias = bias ? weight + out * in * size : nullptr,
                                  .out = out,
                                  .in = in};
      };
      one_by_one.push_back(linear(plain));
      grouped.push_back(linear(interleaved));
    }
  }

  static constexpr std::int64_t kBias = 8;  // the bias, padded to keep matrices aligned
  DeviceBuffer plain;
  DeviceBuffer interleaved;
  std::int64_t stride;  // elements
  std::vector<cuda::DeviceLinear> one_by_one;
  std::vector<cuda::DeviceLinear> grouped;
};

class GroupedProduct : public GpuTest<testing::TestWithParam<DType>> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (!cuda::supports_grouped_gemm(mixture_model(), GetParam(), 0))
      GTEST_SKIP() << "this GPU is none of the Hopper generation, or CUTLASS was not there";
  }
};

// Group sizes: random, empty at either end and in between, one row, and beyond a pair of tiles.
const std::vector<std::vector<std::int32_t>> kGroupSizes = {
    {5, 0, 128, 1, 300, 0, 77}, {0, 0, 0, 9}, {640}, {0, 257, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}};

TEST_P(GroupedProduct, HasTheValuesOfOneProductPerGroup) {
  constexpr std::int64_t kIn = 136;
  constexpr std::int64_t kOut = 448;
  cuda::MatrixMultiplier products(GetParam(), nullptr);
  for (const auto& sizes : kGroupSizes)
    for (const bool bias : {false, true}) {
      const auto groups = std::ssize(sizes);
      std::vector<std::int32_t> begin = {0};
      for (const auto size : sizes) begin.push_back(begin.back() + size);
      const std::int64_t rows = begin.back();
      const ExpertMatrices weights(groups, kOut, kIn, GetParam(), bias);
      const DeviceBuffer x(encoded(normal_values(rows * kIn, 5, 1.0f), GetParam()));
      const DeviceBuffer begins(begin);
      DeviceBuffer y(static_cast<std::size_t>(rows * kOut * 2));
      DeviceBuffer expected(static_cast<std::size_t>(rows * kOut * 2));
      y.poison();
      expected.poison();
      cuda::run_gated_gemm({.x = x.get(),
                            .weight = weights.grouped.front().weight,
                            .y = y.get(),
                            .rows = rows,
                            .in = kIn,
                            .n = kOut / 2,
                            .apart = true,
                            .bf16 = GetParam() == DType::bf16,
                            .groups = static_cast<int>(groups),
                            .begin = begins.get<std::int32_t>(),
                            .bias = weights.grouped.front().bias,
                            .group_stride = weights.stride,
                            .workspace = products.workspace()},
                           nullptr);
      for (std::size_t group = 0; group < sizes.size(); ++group)
        products.multiply({.x = x.get<std::byte>() + begin[group] * kIn * 2,
                           .linear = weights.one_by_one[group],
                           .y = expected.get<std::byte>() + begin[group] * kOut * 2,
                           .rows = sizes[group]});
      const auto found = decoded(y.download<std::byte>(), GetParam());
      const auto wanted = decoded(expected.download<std::byte>(), GetParam());
      // Both round sums of 136 float32 products once; in another order, a sum may fall on the other
      // side of a rounding boundary.
      const float bound = GetParam() == DType::bf16 ? 0x1p-7f : 0x1p-10f;
      for (std::size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], wanted[i], bound * std::abs(wanted[i]) + 1e-4f)
            << sizes.size() << " groups, element " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Types, GroupedProduct, testing::Values(DType::bf16, DType::f16),
                         [](const auto& given) { return std::string(dtype_name(given.param)); });

class MixtureOfExpertsTest : public GpuTest<testing::TestWithParam<DType>> {
 protected:
  static constexpr std::int64_t kRows = 500;

  // When an observer reads gate and up.
  enum class Reads { never, before_gate, after_gate };

  std::vector<float> run(const ModelConfig& model, bool grouped, bool bias, Reads reads) {
    const auto dtype = GetParam();
    const auto& experts = model.experts;
    cuda::MatrixMultiplier products(dtype, nullptr);
    cuda::ActivationCopier copies(nullptr);
    cuda::ActiveRows rows(model, dtype, nullptr);
    cuda::Activations activations(model, dtype);
    const cuda::PassContext pass{model, dtype, nullptr, products, rows, activations, copies};
    cuda::MixtureOfExperts mixture(pass, 0, grouped);
    const ExpertMatrices gate_up(experts.count, (model.gated_mlp() ? 2 : 1) * experts.d_mlp,
                                 model.d_model, dtype, bias);
    const ExpertMatrices down(experts.count, model.d_model, experts.d_mlp, dtype, bias);
    const DeviceBuffer x(encoded(normal_values(kRows * model.d_model, 7, 1.0f), dtype));
    const DeviceBuffer router(
        encoded(normal_values(experts.count * model.d_model, 9, 0.1f), dtype));
    DeviceBuffer y(static_cast<std::size_t>(kRows * model.d_model) * dtype_size(dtype));
    y.poison();
    mixture.project_router(x.get(), kRows,
                           {.weight = router.get(), .out = experts.count, .in = model.d_model});
    mixture.choose_experts(kRows, nullptr);
    constexpr std::int64_t kChunk = 300;
    for (std::int64_t begin = 0; begin < kRows; begin += kChunk) {
      const auto count = std::min(kChunk, kRows - begin);
      mixture.project_gate_up(x.get(), begin, count,
                              grouped ? gate_up.grouped : gate_up.one_by_one);
      if (reads == Reads::before_gate) mixture.restore_row_order();
      mixture.apply_gate();
      if (reads == Reads::after_gate) mixture.restore_row_order();
      const auto first = static_cast<std::size_t>(begin * model.d_model) * dtype_size(dtype);
      mixture.project_down(grouped ? down.grouped : down.one_by_one, y.get<std::byte>() + first);
    }
    return decoded(y.download<std::byte>(), dtype);
  }

  bool can_group() const { return cuda::supports_grouped_gemm(mixture_model(), GetParam(), 0); }
};

TEST_P(MixtureOfExpertsTest, AnObserverChangesNoBit) {
  for (const bool grouped : {false, true}) {
    if (grouped && !can_group()) continue;
    for (const bool bias : {false, true})
      for (const auto& model : {mixture_model(), ungated_mixture_model()}) {
        const auto plain = run(model, grouped, bias, Reads::never);
        EXPECT_EQ(run(model, grouped, bias, Reads::before_gate), plain);
        EXPECT_EQ(run(model, grouped, bias, Reads::after_gate), plain);
      }
  }
}

TEST_P(MixtureOfExpertsTest, GroupsAgreeWithOneExpertAtATime) {
  if (!can_group()) GTEST_SKIP() << "no kernel for groups on this GPU or for this type";
  for (auto model : {mixture_model(), ungated_mixture_model()})
    for (const int choice : {0, 1, 2, 3}) {
      const bool bias = choice % 2 == 1;
      model.experts.scales_input = choice / 2 == 1;
      const auto found = run(model, true, bias, Reads::never);
      const auto wanted = run(model, false, bias, Reads::never);
      double difference = 0.0;
      double norm = 0.0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        difference += std::pow(static_cast<double>(found[i]) - wanted[i], 2);
        norm += std::pow(static_cast<double>(wanted[i]), 2);
      }
      // Few of the roundings differ, so the relative norm is well below half an ulp.
      EXPECT_LT(std::sqrt(difference / norm), GetParam() == DType::bf16 ? 0x1p-9 : 0x1p-12);
    }
}

// SwiGLU is not linear, so the place of the weight matters.
TEST_P(MixtureOfExpertsTest, ScaledInputsDifferFromScaledOutputs) {
  auto model = mixture_model();
  model.experts.sigmoid = true;
  const auto outputs = run(model, false, false, Reads::never);
  model.experts.scales_input = true;
  const auto inputs = run(model, false, false, Reads::never);
  EXPECT_NE(inputs, outputs);
  for (const auto value : inputs) ASSERT_TRUE(std::isfinite(value));
}

INSTANTIATE_TEST_SUITE_P(Types, MixtureOfExpertsTest,
                         testing::Values(DType::bf16, DType::f16, DType::f32),
                         [](const auto& given) { return std::string(dtype_name(given.param)); });

class GroupSlots : public GpuTest<> {};

TEST_F(GroupSlots, AreSortedByExpertInTheirOrder) {
  constexpr std::int64_t kSlots = 5000;
  constexpr std::int64_t kExperts = 130;
  std::mt19937 generator(1);
  std::vector<float> indices(kSlots);
  for (auto& index : indices) index = static_cast<float>(generator() % 65 * 2);  // odd ones: none
  std::vector<std::int32_t> order(kSlots);
  for (std::int32_t slot = 0; slot < kSlots; ++slot) order[static_cast<std::size_t>(slot)] = slot;
  std::ranges::stable_sort(
      order, {}, [&](std::int32_t slot) { return indices[static_cast<std::size_t>(slot)]; });
  const DeviceBuffer device_indices(indices);
  const DeviceBuffer begin((kExperts + 1) * sizeof(std::int32_t));
  const DeviceBuffer slots(kSlots * sizeof(std::int32_t));
  const DeviceBuffer places(kSlots * sizeof(std::int32_t));
  cuda::group_slots_by_expert({.indices = device_indices.get<float>(),
                               .begin = begin.get<std::int32_t>(),
                               .slots = slots.get<std::int32_t>(),
                               .places = places.get<std::int32_t>(),
                               .count = kSlots,
                               .experts = kExperts},
                              nullptr);
  EXPECT_EQ(slots.download<std::int32_t>(), order);
  const auto found = places.download<std::int32_t>();
  for (std::size_t place = 0; place < order.size(); ++place)
    EXPECT_EQ(found[static_cast<std::size_t>(order[place])], static_cast<std::int32_t>(place));
  const auto begins = begin.download<std::int32_t>();
  for (std::int64_t e = 0; e <= kExperts; ++e)
    EXPECT_EQ(begins[static_cast<std::size_t>(e)],
              std::ranges::count_if(indices, [&](float i) { return i < static_cast<float>(e); }));
}

}  // namespace
}  // namespace qkscope
