// Norm and rotation of heads on the GPU against their formulas in float64. Needs an NVIDIA GPU.
#include <cmath>
#include <random>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/core/numbers.h"
#include "device_buffer.h"
#include "engine/device/cuda/pass_kernels.h"

namespace qkscope {
namespace {

constexpr std::int64_t kNormRows = 5, kNormHeads = 3, kNormKeyHeads = 2;
constexpr double kHeadEps = 1e-3;

std::vector<float> random_head_values(std::int64_t count, DType dtype) {
  static std::mt19937 generator(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(as_index(count));
  for (auto& value : values) value = normal(generator);
  return decoded(encoded(values, dtype), dtype);
}

// A head after RMSNorm with `weight` and the rotation of pairs (i, i + dim / 2).
std::vector<double> expected_rotated_head(const float* x, const std::vector<float>& weight,
                                          const float* cos, const float* sin, std::int64_t dim) {
  std::vector<double> head(x, x + weight.size());
  double squares = 0.0;
  for (const double value : head) squares += value * value;
  for (std::size_t i = 0; i < head.size(); ++i)
    head[i] *= static_cast<double>(weight[i]) /
               std::sqrt(squares / static_cast<double>(head.size()) + kHeadEps);
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    double& a = head[as_index(i)];
    double& b = head[as_index(i + dim / 2)];
    const double c = static_cast<double>(cos[i]), s = static_cast<double>(sin[i]);
    std::tie(a, b) = std::pair(a * c - b * s, b * c + a * s);
  }
  return head;
}

class HeadNormAndRope : public GpuTest<testing::TestWithParam<std::tuple<DType, std::int64_t>>> {};

// q and k are normalised and rotated; v, which follows them in a row, keeps its bits.
TEST_P(HeadNormAndRope, MatchTheFormula) {
  const auto [dtype, d_head] = GetParam();
  for (const auto dim : {d_head, d_head / 4, std::int64_t{0}}) {
    const auto stride = (kNormHeads + 2 * kNormKeyHeads) * d_head;
    const auto x = random_head_values(kNormRows * stride, dtype);
    const auto q_norm = random_head_values(d_head, DType::f32);
    const auto k_norm = random_head_values(d_head, DType::f32);
    const auto cos = random_head_values(kNormRows * dim / 2 + 1, dtype);
    const auto sin = random_head_values(kNormRows * dim / 2 + 1, dtype);
    const DeviceBuffer rows(encoded(x, dtype)), q_weight(q_norm), k_weight(k_norm),
        cosines(encoded(cos, dtype)), sines(encoded(sin, dtype));
    cuda::normalize_and_rotate(
        {.q = rows.get(),
         .k = rows.get<std::byte>() +
              kNormHeads * d_head * static_cast<std::int64_t>(dtype_size(dtype)),
         .row_stride = stride,
         .rows = kNormRows,
         .n_heads = kNormHeads,
         .n_kv_heads = kNormKeyHeads,
         .d_head = d_head,
         .q_norm = q_weight.get<float>(),
         .k_norm = k_weight.get<float>(),
         .eps = static_cast<float>(kHeadEps),
         .rotary = {.cos = cosines.get(), .sin = sines.get(), .dim = dim},
         .rotate = dim > 0,
         .dtype = dtype},
        nullptr);
    const auto y = decoded(rows.download<std::byte>(), dtype);
    // Norm, rotation and result are rounded to the type; cosines and sines are at most about 4.
    const double bound = dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 2e-2 : 1.5e-1;
    for (std::int64_t row = 0; row < kNormRows; ++row) {
      for (std::int64_t head = 0; head < kNormHeads + kNormKeyHeads; ++head) {
        const auto at = row * stride + head * d_head;
        const auto expected =
            expected_rotated_head(x.data() + at, head < kNormHeads ? q_norm : k_norm,
                                  cos.data() + row * dim / 2, sin.data() + row * dim / 2, dim);
        for (std::int64_t i = 0; i < d_head; ++i)
          ASSERT_NEAR(y[as_index(at + i)], expected[as_index(i)], bound)
              << dim << ", head " << head;
      }
      for (auto i = (kNormHeads + kNormKeyHeads) * d_head; i < stride; ++i)
        ASSERT_EQ(y[as_index(row * stride + i)], x[as_index(row * stride + i)]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HeadNormAndRope,
                         testing::Combine(testing::Values(DType::bf16, DType::f16, DType::f32),
                                          testing::Values(8, 64, 128, 256, 320, 512)),
                         [](const auto& given) {
                           return fmt::format("{}_{}", dtype_name(std::get<0>(given.param)),
                                              std::get<1>(given.param));
                         });

}  // namespace
}  // namespace qkscope
