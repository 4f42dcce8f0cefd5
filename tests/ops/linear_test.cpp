#include "ops/linear.h"

#include <cstring>

#include <gtest/gtest.h>

#include "cpu_targets.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

class LinearLayer : public EachCpuTarget {};

struct Case {
  std::int64_t rows, in, out;
  DType dtype;
};

// Against sums in float64 of the stored values. A float32 sum of n products of order 1 is off by at
// most about n units of 6e-8, typically sqrt(n) of them.
TEST_P(LinearLayer, MatchesThePlainProductForEveryType) {
  for (const auto& [rows, in, out, dtype] :
       {Case{1, 8, 5, DType::f32}, Case{37, 64, 48, DType::bf16}, Case{300, 96, 600, DType::f16},
        Case{17, 700, 33, DType::f32}, Case{1030, 16, 20, DType::bf16}}) {
    const auto x = random_tensor({rows, in}, 1);
    const auto stored = rounded(random_tensor({out, in}, 2), dtype);
    const auto weight = to_float32(stored);
    const auto bias = random_tensor({out}, 3);
    const Linear layer{{stored, 0.5f}, {bias.data<float>(), bias.data<float>() + out}};
    Tensor y({rows, out});
    linear(x, layer, y);
    double worst = 0.0;
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < out; ++column) {
        double sum = 0.0;
        for (std::int64_t i = 0; i < in; ++i)
          sum += static_cast<double>(x.data<float>()[row * in + i]) *
                 weight.data<float>()[column * in + i];
        sum = 0.5 * sum + bias.data<float>()[column];
        worst = std::max(worst, std::abs(sum - y.data<float>()[row * out + column]));
      }
    EXPECT_LT(worst, 1e-6 * static_cast<double>(in)) << rows << "x" << in << "x" << out;
  }
}

// Stored with other rows between blocks of its own, or as (in, out) with other columns beside them:
// the bits of the same matrix stored plainly.
TEST_P(LinearLayer, TheWayAMatrixIsStoredChangesNoBit) {
  constexpr std::int64_t kIn = 70, kOut = 300, kBlocks = 5, kRows = kOut / kBlocks;
  const auto x = random_tensor({11, kIn}, 6);
  for (const auto dtype : {DType::f32, DType::bf16, DType::f16}) {
    const auto plain = rounded(random_tensor({kOut, kIn}, 7), dtype);
    const auto size = static_cast<std::int64_t>(dtype_size(dtype));
    Tensor in_blocks({kBlocks, 3, kRows, kIn}, dtype);
    Tensor transposed({kIn, 2 * kOut}, dtype);
    std::memset(in_blocks.view().bytes(), 1, in_blocks.view().size_bytes());
    std::memset(transposed.view().bytes(), 1, transposed.view().size_bytes());
    for (std::int64_t row = 0; row < kOut; ++row)
      for (std::int64_t i = 0; i < kIn; ++i) {
        const auto* from = plain.view().bytes() + (row * kIn + i) * size;
        const auto block = (row / kRows * 3 + 1) * kRows + row % kRows;
        std::memcpy(in_blocks.view().bytes() + (block * kIn + i) * size, from,
                    static_cast<std::size_t>(size));
        std::memcpy(transposed.view().bytes() + (i * 2 * kOut + kOut + row) * size, from,
                    static_cast<std::size_t>(size));
      }
    const WeightMatrix middle_blocks{{in_blocks.view().bytes() + kRows * kIn * size,
                                      dtype,
                                      {kBlocks, kRows, kIn},
                                      {3 * kRows * kIn, kIn, 1},
                                      {}},
                                     0.5f};
    const WeightMatrix right_half{
        {transposed.view().bytes() + kOut * size, dtype, {kOut, kIn}, {1, 2 * kOut}, {}}, 0.5f};
    Tensor expected({11, kOut});
    linear(x, WeightMatrix{plain, 0.5f}, expected);
    for (const auto& matrix : {middle_blocks, right_half}) {
      ASSERT_EQ(matrix.out(), kOut);
      ASSERT_EQ(matrix.in(), kIn);
      Tensor y({11, kOut});
      linear(x, matrix, y);
      EXPECT_EQ(std::memcmp(y.view().bytes(), expected.view().bytes(), y.view().size_bytes()), 0)
          << dtype_name(dtype) << (matrix.transposed() ? " transposed" : " in blocks");
    }
  }
}

TEST_P(LinearLayer, ARowDoesNotDependOnTheRowsBesideIt) {
  const auto x = random_tensor({513, 96}, 4);
  const auto weight = random_tensor({700, 96}, 5);
  Tensor whole({513, 700});
  linear(x, WeightMatrix{weight, 1.0f}, whole);
  for (const auto& [begin, end] : {std::pair{0, 1}, {5, 6}, {100, 117}, {200, 457}, {511, 513}}) {
    Tensor part({end - begin, 700});
    linear(x.view().rows(begin, end), WeightMatrix{weight, 1.0f}, part);
    EXPECT_EQ(std::memcmp(part.view().bytes(), whole.view().rows(begin, end).bytes(),
                          part.view().size_bytes()),
              0)
        << begin << " to " << end;
  }
}

QKSCOPE_EACH_CPU_TARGET(LinearLayer);

}  // namespace
}  // namespace qkscope
