#include "engine/ops/linear.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "base/core/thread_pool.h"
#include "cpu_targets.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

class LinearLayer : public EachCpuTarget {};

struct LinearCase {
  std::int64_t rows, in, out;
  DType dtype;
};

// Compares with float64 sums of the stored values. A float32 sum of n products of order 1 has an
// error of at most about 6e-8 n, typically 6e-8 sqrt(n).
TEST_P(LinearLayer, MatchesFloat64ForEveryStoredType) {
  for (const auto& [rows, in, out, dtype] :
       {LinearCase{1, 8, 5, DType::f32}, LinearCase{37, 64, 48, DType::bf16},
        LinearCase{300, 96, 600, DType::f16}, LinearCase{17, 700, 33, DType::f32},
        LinearCase{1030, 16, 20, DType::bf16}}) {
    const auto x = random_tensor({rows, in}, 1);
    const auto stored = rounded(random_tensor({out, in}, 2), dtype);
    const auto weight = to_float32(stored);
    const auto bias = random_tensor({out}, 3);
    const Linear layer{{stored, 0.5f}, {bias.data<float>(), bias.data<float>() + out}};
    Tensor y({rows, out});
    apply_linear(x, layer, y);
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

// Matrices with interleaved rows of other matrices, or stored as (in, out), have the bits of the
// plain layout.
TEST_P(LinearLayer, StorageLayoutChangesNoBit) {
  constexpr std::int64_t kIn = 70, kOut = 300, kBlocks = 5, kRows = kOut / kBlocks;
  const auto x = random_tensor({11, kIn}, 6);
  for (const auto dtype : {DType::f32, DType::bf16, DType::f16}) {
    const auto plain = rounded(random_tensor({kOut, kIn}, 7), dtype);
    const auto size = static_cast<std::int64_t>(dtype_size(dtype));
    Tensor in_blocks({kBlocks, 3, kRows, kIn}, dtype);
    Tensor transposed({kIn, 2 * kOut}, dtype);
    Tensor in_turn({kIn, 2 * kOut}, dtype);      // stored (in, out), every second column
    Tensor every_second({kOut, 2, kIn}, dtype);  // every second row
    std::memset(in_turn.view().bytes(), 1, in_turn.view().size_bytes());
    std::memset(every_second.view().bytes(), 1, every_second.view().size_bytes());
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
        std::memcpy(in_turn.view().bytes() + (i * 2 * kOut + 2 * row + 1) * size, from,
                    static_cast<std::size_t>(size));
        std::memcpy(every_second.view().bytes() + (2 * row * kIn + i) * size, from,
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
    const WeightMatrix odd_columns{
        {in_turn.view().bytes() + size, dtype, {kOut, kIn}, {2, 2 * kOut}, {}}, 0.5f};
    const WeightMatrix even_rows{
        {every_second.view().bytes(), dtype, {kOut, kIn}, {2 * kIn, 1}, {}}, 0.5f};
    Tensor expected({11, kOut});
    apply_linear(x, WeightMatrix{plain, 0.5f}, expected);
    for (const auto& matrix : {middle_blocks, right_half, odd_columns, even_rows}) {
      ASSERT_EQ(matrix.out(), kOut);
      ASSERT_EQ(matrix.in(), kIn);
      Tensor y({11, kOut});
      apply_linear(x, matrix, y);
      EXPECT_EQ(std::memcmp(y.view().bytes(), expected.view().bytes(), y.view().size_bytes()), 0)
          << dtype_name(dtype) << (matrix.transposed() ? " transposed" : " in blocks");
    }
  }
}

// All byte values and several scales against the table of OCP Microscaling 1.0, in parts with
// arbitrary begin.
TEST_P(LinearLayer, Mxfp4ConvertsExactly) {
  constexpr std::int64_t kOut = 3, kIn = 192;
  Tensor blocks({kOut, kIn / 2}, DType::u8);
  Tensor scales({kOut, kIn / 32}, DType::u8);
  auto* bytes = reinterpret_cast<std::uint8_t*>(blocks.view().bytes());
  auto* powers = reinterpret_cast<std::uint8_t*>(scales.view().bytes());
  for (std::int64_t i = 0; i < blocks.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  const std::uint8_t some[] = {0, 1, 100, 127, 130, 200, 252, 255};
  for (std::int64_t i = 0; i < scales.size(); ++i) powers[i] = some[i % 8];
  WeightMatrix matrix{blocks, 1.0f};
  matrix.block_scales = scales;
  ASSERT_EQ(matrix.in(), kIn);
  ASSERT_EQ(matrix.out(), kOut);
  const double table[] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  for (const std::int64_t begin : {0, 1, 31, 45}) {
    const WeightSubmatrix part{.first = 1, .rows = 2, .begin = begin, .depth = 100};
    std::vector<float> wide(200);
    weights_to_float32(matrix, part, wide.data());
    for (std::int64_t row = 1; row < kOut; ++row)
      for (std::int64_t i = begin; i < begin + 100; ++i) {
        const float found = wide[static_cast<std::size_t>((row - 1) * 100 + i - begin)];
        const auto number = bytes[row * kIn / 2 + i / 2] >> (i % 2 * 4) & 15;
        const auto power = powers[row * kIn / 32 + i / 32];
        if (power == 255) {
          EXPECT_TRUE(std::isnan(found));
          continue;
        }
        const double expected = std::ldexp(table[number % 8], power - 127);
        EXPECT_EQ(found, static_cast<float>(number < 8 ? expected : -expected));
        if (power > 1) {
          EXPECT_EQ(to_float(to_bf16(found)), found);  // no bit is lost there either
        }
      }
  }
}

TEST_P(LinearLayer, ARowDoesNotDependOnOtherRows) {
  const auto x = random_tensor({513, 96}, 4);
  const auto weight = random_tensor({700, 96}, 5);
  Tensor whole({513, 700});
  apply_linear(x, WeightMatrix{weight, 1.0f}, whole);
  for (const auto& [begin, end] : {std::pair{0, 1}, {5, 6}, {100, 117}, {200, 457}, {511, 513}}) {
    Tensor part({end - begin, 700});
    apply_linear(x.view().rows(begin, end), WeightMatrix{weight, 1.0f}, part);
    EXPECT_EQ(std::memcmp(part.view().bytes(), whole.view().rows(begin, end).bytes(),
                          part.view().size_bytes()),
              0)
        << begin << " to " << end;
  }
}

bool same_bits(ConstTensorView a, ConstTensorView b) {
  return a.size_bytes() == b.size_bytes() && std::memcmp(a.bytes(), b.bytes(), a.size_bytes()) == 0;
}

// Few columns are packed once for all threads, many columns by each thread.
TEST_P(LinearLayer, AColumnDoesNotDependOnOtherColumns) {
  const std::int64_t rows = 61, in = 70, out = 100 * std::int64_t{thread_count()} * 8;
  const auto x = random_tensor({rows, in}, 6);
  const auto weight = rounded(random_tensor({out, in}, 7), DType::bf16);
  Tensor whole({rows, out});
  apply_linear(x, WeightMatrix{weight, 1.0f}, whole);
  for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {90, 200}}) {
    Tensor part({rows, end - begin});
    apply_linear(x, WeightMatrix{weight.view().rows(begin, end), 1.0f}, part);
    for (std::int64_t row = 0; row < rows; ++row)
      EXPECT_EQ(std::memcmp(part.data<float>() + row * (end - begin),
                            whole.data<float>() + row * out + begin,
                            static_cast<std::size_t>(end - begin) * sizeof(float)),
                0);
  }
}

TEST_P(LinearLayer, SeveralLayersAtOnceHaveTheBitsOfSeparateCalls) {
  const auto x = random_tensor({200, 48}, 8);
  const auto first_weight = random_tensor({130, 48}, 9);
  const auto second_weight = rounded(random_tensor({20, 48}, 10), DType::f16);
  const Linear first{{first_weight, 1.0f}, std::vector<float>(130, 0.25f)};
  const Linear second{{second_weight, 1.0f}, {}};
  Tensor alone_first({200, 130}), alone_second({200, 20}), y_first({200, 130}), y_second({200, 20});
  apply_linear(x, first, alone_first);
  apply_linear(x, second, alone_second);
  apply_linear(x, {{first, y_first}, {second, y_second}});
  EXPECT_TRUE(same_bits(y_first, alone_first));
  EXPECT_TRUE(same_bits(y_second, alone_second));
}

TEST_P(LinearLayer, ThreadCountChangesNoBit) {
  const auto x = random_tensor({300, 1300}, 11);
  const auto weight = random_tensor({210, 1300}, 12);
  Tensor expected({300, 210});
  set_thread_count(1);
  apply_linear(x, WeightMatrix{weight, 1.0f}, expected);
  for (const int threads : {2, 3, 16}) {
    set_thread_count(threads);
    Tensor y({300, 210});
    apply_linear(x, WeightMatrix{weight, 1.0f}, y);
    EXPECT_TRUE(same_bits(y, expected)) << threads;
  }
  set_thread_count(0);
}

QKSCOPE_EACH_CPU_TARGET(LinearLayer);

}  // namespace
}  // namespace qkscope
