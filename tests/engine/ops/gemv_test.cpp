// Products of few rows (gemv::multiply) have the bits of products of many rows (gemm::multiply).
#include <cstring>

#include <gtest/gtest.h>

#include "base/core/thread_pool.h"
#include "cpu_targets.h"
#include "engine/ops/gemm.h"
#include "engine/ops/linear.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

class FewRows : public EachCpuTarget {};

void expect_bits_of_many(const Linear& layer, const std::string& what) {
  const auto in = layer.weight.in();
  const auto out = layer.weight.out();
  const auto x = random_tensor({40, in}, 1);
  Tensor many({40, out});
  apply_linear(x, layer, many);
  for (std::int64_t rows = 1; rows <= gemv::kMostRows + 1; ++rows) {
    Tensor few({rows, out});
    apply_linear(x.view().rows(3, 3 + rows), layer, few);
    EXPECT_EQ(std::memcmp(few.view().bytes(), many.view().rows(3, 3 + rows).bytes(),
                          few.view().size_bytes()),
              0)
        << what << ", " << rows << " rows";
  }
}

TEST_P(FewRows, HaveTheBitsOfManyRows) {
  for (const auto dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                  {7, 31},
                                  {64, 32},
                                  {576, 100},
                                  {641, 257},
                                  {1300, 33}}) {
      const auto stored = rounded(random_tensor({out, in}, 2), dtype);
      const auto bias = random_tensor({out}, 3);
      for (const float scale : {1.0f, 0.5f}) {
        Linear layer{{stored, scale}, {}};
        const auto what = std::string(dtype_name(dtype)) + " " + std::to_string(in) + " x " +
                          std::to_string(out) + " scale " + std::to_string(scale);
        expect_bits_of_many(layer, what);
        layer.bias.assign(bias.data<float>(), bias.data<float>() + out);
        expect_bits_of_many(layer, what + " with bias");
      }
    }
}

TEST_P(FewRows, BlockedAndTransposedMatricesHaveTheBitsOfManyRows) {
  constexpr std::int64_t kIn = 70, kOut = 300;
  for (const auto dtype : {DType::f32, DType::bf16}) {
    const auto stored = rounded(random_tensor({3 * kOut, kIn}, 7), dtype);
    const auto* bytes = stored.view().bytes();
    expect_bits_of_many({{{bytes, dtype, {5, 60, kIn}, {180 * kIn, kIn, 1}, {}}, 1.0f}, {}},
                        "blocks");
    expect_bits_of_many({{{bytes, dtype, {kOut, kIn}, {1, kOut}, {}}, 1.0f}, {}}, "transposed");
  }
}

TEST_P(FewRows, ThreadCountChangesNoBitOfSeveralProducts) {
  const auto x = random_tensor({2, 576}, 1);
  const auto a = random_tensor({576, 576}, 2);
  const auto b = random_tensor({97, 576}, 3);
  const Linear layers[] = {{{a, 1.0f}, {}}, {{b, 1.0f}, {}}};
  Tensor y[2][2] = {{Tensor({2, 576}), Tensor({2, 97})}, {Tensor({2, 576}), Tensor({2, 97})}};
  for (const int threads : {1, 3}) {
    set_thread_count(threads);
    auto& out = y[threads / 3];
    apply_linear(x, {{layers[0], out[0]}, {layers[1], out[1]}});
  }
  set_thread_count(0);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(
        std::memcmp(y[0][i].view().bytes(), y[1][i].view().bytes(), y[0][i].view().size_bytes()),
        0);
}

QKSCOPE_EACH_CPU_TARGET(FewRows);

}  // namespace
}  // namespace qkscope
