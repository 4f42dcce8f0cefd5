#include "engine/ops/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "cpu_targets.h"
#include "random_tensor.h"

namespace qkscope {
namespace {

// The tile shape identifies the CPU target that runs.
TEST(Gemm, DispatchRunsTheSelectedCpuTarget) {
  const std::map<std::string, std::pair<std::int64_t, std::int64_t>> shapes = {
      {"avx512", {8, 48}}, {"avx2", {4, 24}}, {"sse4", {4, 12}}, {"neon", {8, 12}}};
  for_each_cpu_target([&](const std::string& name) {
    ASSERT_FALSE(cpu_targets().empty());  // asking changes nothing
    const auto found = gemm::tile_shape();
    EXPECT_EQ(std::pair(found.rows, found.columns), shapes.at(name));
  });
}

class GemmBlocks : public EachCpuTarget {};

// Reference: one chain of fused multiply-adds in ascending order.
float chain(const Tensor& left, std::int64_t row, const Tensor& right, std::int64_t column,
            std::int64_t depth) {
  float sum = 0.0f;
  for (std::int64_t k = 0; k < depth; ++k)
    sum = std::fma(left.data<float>()[row * left.dim(1) + k],
                   right.data<float>()[column * right.dim(1) + k], sum);
  return sum;
}

TEST_P(GemmBlocks, EveryElementIsOneChainOfFusedMultiplyAdds) {
  if (!cpu_target_has_fma(GetParam())) return;  // rounds products on the way
  const std::int64_t rows = 29, columns = 53, depth = 37;
  const auto left = random_tensor({rows, depth}, 1);
  const auto right = random_tensor({columns, depth}, 2);
  Tensor transposed({depth, rows});
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t k = 0; k < depth; ++k)
      transposed.data<float>()[k * rows + row] = left.data<float>()[row * depth + k];
  const auto tile = gemm::tile_shape();
  Tensor by_rows({gemm::round_up(rows, tile.rows) * depth});
  Tensor by_columns(by_rows.shape());
  Tensor packed({gemm::round_up(columns, tile.columns) * depth});
  gemm::pack_left_operand({left.data<float>(), depth, rows, depth}, by_rows.data<float>());
  gemm::pack_left_operand({transposed.data<float>(), rows, rows, depth, true},
                          by_columns.data<float>());
  gemm::pack_right_operand({right.data<float>(), depth, columns, depth}, packed.data<float>());
  EXPECT_EQ(
      std::memcmp(by_rows.view().bytes(), by_columns.view().bytes(), by_rows.view().size_bytes()),
      0);
  Tensor product({rows, columns});
  gemm::multiply({by_rows.data<float>(), packed.data<float>(), rows, columns, depth}, false,
                 product.data<float>(), columns);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      EXPECT_EQ(product.data<float>()[row * columns + column],
                chain(left, row, right, column, depth));
}

TEST_P(GemmBlocks, DepthMayBeSmallerThanThePackedDepth) {
  const auto tile = gemm::tile_shape();
  const std::int64_t rows = 2 * tile.rows, packed_depth = 40, depth = 13;
  const auto left = random_tensor({rows, packed_depth}, 3);
  const auto right = random_tensor({tile.columns, depth}, 4);
  Tensor packed_left({rows * packed_depth});
  Tensor packed_right({tile.columns * depth});
  gemm::pack_left_operand({left.data<float>(), packed_depth, rows, packed_depth},
                          packed_left.data<float>());
  gemm::pack_right_operand({right.data<float>(), depth, tile.columns, depth},
                           packed_right.data<float>());
  Tensor product({rows, tile.columns});
  std::fill_n(product.data<float>(), product.size(), 1.0f);
  gemm::multiply({packed_left.data<float>(), packed_right.data<float>(), rows, tile.columns, depth,
                  packed_depth},
                 true, product.data<float>(), tile.columns);
  const float last = product.data<float>()[product.size() - 1];
  if (cpu_target_has_fma(GetParam())) {
    EXPECT_EQ(last, 1.0f + chain(left, rows - 1, right, tile.columns - 1, depth));
  } else {
    EXPECT_NEAR(last, 1.0f + chain(left, rows - 1, right, tile.columns - 1, depth), 1e-5);
  }
}

TEST_P(GemmBlocks, TileRateIsPlausible) {
  EXPECT_GT(gemm::measure_peak_flop_rate(0.01), 1e8);  // a tenth of the rate of one slow core
}

QKSCOPE_EACH_CPU_TARGET(GemmBlocks);

}  // namespace
}  // namespace qkscope
