// Matrix products and statistics against plain loops.
#include "base/numerics/products.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/numerics/normal.h"
#include "base/numerics/random.h"
#include "base/numerics/reference.h"
#include "base/numerics/sample_statistics.h"
#include "cpu_targets.h"

namespace qkscope {
namespace {

Matrix random_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Random random(seed);
  Matrix matrix(rows, cols);
  for (double& x : matrix.data) x = random.normal();
  return matrix;
}

// The results differ only by the order of additions.
constexpr double kRounding = 1e-13;

void check_products_of_all_shapes() {
  for (const std::int64_t rows : {1, 2, 4, 5, 6, 11})
    for (const std::int64_t depth : {1, 3, 8, 130})
      for (const std::int64_t cols : {1, 7, 8, 9, 16}) {
        const Matrix left = random_matrix(rows, depth, 1);
        const Matrix right = random_matrix(depth, cols, 2);
        const Matrix turned = random_matrix(cols, depth, 3);
        const Matrix product = multiply(left, right);
        const Matrix product_turned = multiply_by_transpose(left, turned);
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < cols; ++j) {
            double sum = 0;
            double sum_turned = 0;
            for (std::int64_t k = 0; k < depth; ++k) {
              sum += left(i, k) * right(k, j);
              sum_turned += left(i, k) * turned(j, k);
            }
            EXPECT_NEAR(product(i, j), sum, kRounding * 10);
            EXPECT_NEAR(product_turned(i, j), sum_turned, kRounding * 10);
          }
      }
}

TEST(Products, AgreeWithPlainLoopsForAllShapes) {
  for_each_cpu_target([](const std::string&) { check_products_of_all_shapes(); });
}

void check_gram_of_all_shapes() {
  for (const std::int64_t rows : {1, 63, 64, 150})
    for (const std::int64_t cols : {1, 5, 8, 13, 32}) {
      const Matrix x = random_matrix(rows, cols, 4);
      Matrix gram(cols, cols);
      add_gram(x.data.data(), rows, gram);
      mirror_upper_triangle(gram);
      for (std::int64_t i = 0; i < cols; ++i)
        for (std::int64_t j = 0; j < cols; ++j) {
          double sum = 0;
          for (std::int64_t k = 0; k < rows; ++k) sum += x(k, i) * x(k, j);
          EXPECT_NEAR(gram(i, j), sum, kRounding * 100);
        }
    }
}

TEST(Products, GramAgreesWithPlainLoopsForAllShapes) {
  for_each_cpu_target([](const std::string&) { check_gram_of_all_shapes(); });
}

FloatMatrix in_float(const Matrix& matrix) {
  FloatMatrix copy(matrix.rows, matrix.cols);
  std::transform(matrix.data.begin(), matrix.data.end(), copy.data.begin(),
                 [](double x) { return static_cast<float>(x); });
  return copy;
}

// Random shapes, with columns in the middle of a wider matrix. Targets with fused multiply-adds
// must reproduce every bit; at most kFewColumnsPadding numbers may be written past the end.
void check_narrow_products(bool fused) {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    const auto rows = static_cast<std::int64_t>(1 + random.next_below(40));
    const auto depth = static_cast<std::int64_t>(1 + random.next_below(70));
    const auto columns = static_cast<std::int64_t>(1 + random.next_below(20));
    const FloatMatrix left = in_float(random_matrix(rows, depth, random.next_uint64()));
    const FloatMatrix right =
        in_float(random_matrix(depth, columns + 2 + kFewColumnsPadding, random.next_uint64()));
    constexpr float kUntouched = -7;
    std::vector<float> product(static_cast<std::size_t>(rows * columns + 2 * kFewColumnsPadding),
                               kUntouched);
    multiply_few_columns(left.data.data(), rows, depth, right.row(0) + 2, right.cols, columns,
                         product.data());
    std::vector<float> expected(static_cast<std::size_t>(rows * columns));
    multiply_few_columns_reference(left.data.data(), rows, depth, right.row(0) + 2, right.cols,
                                   columns, expected.data());
    // Without fused multiply-adds a sum of 70 products rounds twice as often.
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(product[i], expected[i], fused ? 0 : 1e-5)
          << rows << " " << depth << " " << columns;
    const auto behind = product.begin() + rows * columns + kFewColumnsPadding;
    EXPECT_TRUE(std::all_of(behind, product.end(), [](float x) { return x == kUntouched; }));
  }
}

TEST(Products, NarrowProductsAgreeWithTheReference) {
  for_each_cpu_target(
      [](const std::string& target) { check_narrow_products(cpu_target_has_fma(target)); });
}

void check_centred_gram() {
  for (const std::int64_t cols : {1, 5, 8, 13, 32}) {
    const Matrix x = random_matrix(150, cols, 7);
    const std::vector<float> rows(x.data.begin(), x.data.end());
    const Matrix mean = random_matrix(1, cols, 8);
    std::vector<std::int64_t> some;
    for (std::int64_t i = 0; i < 70; ++i) some.push_back((i * 37) % 150);
    const Matrix weight = random_matrix(1, 70, 9);
    Matrix gram(cols, cols);
    std::vector<double> weighted(static_cast<std::size_t>(cols));
    const WeightedRowSum sums[] = {{weight.data, weighted}};
    add_centred_gram_and_sums(rows.data(), some, mean.data, gram, sums);
    mirror_upper_triangle(gram);
    const auto centred = [&](std::int64_t row, std::int64_t j) {
      return rows[static_cast<std::size_t>(row * cols + j)] - mean(0, j);
    };
    for (std::int64_t i = 0; i < cols; ++i) {
      double along = 0;
      for (std::size_t k = 0; k < some.size(); ++k) along += weight.data[k] * centred(some[k], i);
      EXPECT_NEAR(weighted[static_cast<std::size_t>(i)], along, kRounding * 100);
      for (std::int64_t j = 0; j < cols; ++j) {
        double sum = 0;
        for (const auto row : some) sum += centred(row, i) * centred(row, j);
        EXPECT_NEAR(gram(i, j), sum, kRounding * 100);
      }
    }
  }
}

TEST(Products, CentredGramAgreesWithPlainLoops) {
  for_each_cpu_target([](const std::string&) { check_centred_gram(); });
}

void check_dots() {
  for (const std::int64_t cols : {1, 15, 16, 40, 128})
    for (const std::int64_t count : {1, 2, 5}) {
      const Matrix x = random_matrix(count, cols, 10);
      const std::vector<float> rows(x.data.begin(), x.data.end());
      const Matrix y = random_matrix(1, cols, 11);
      std::vector<double> found(static_cast<std::size_t>(count));
      compute_row_dots(rows.data(), count, y.data, found.data());
      const auto width = static_cast<std::size_t>(cols);
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(found[i], dot(std::span(rows).subspan(i * width, width), y.data));
    }
}

TEST(Products, DotsOfManyRowsEqualSingleDots) {
  for_each_cpu_target([](const std::string&) { check_dots(); });
}

TEST(Kolmogorov, DistanceAgreesWithTheReference) {
  for (int round = 0; round < 60; ++round) {
    Random random(static_cast<std::uint64_t>(round));
    std::vector<double> values;
    const auto count = 1 + random.next_below(3000);
    for (std::uint64_t i = 0; i < count; ++i) {
      const double x = random.normal() * (round % 3 == 0 ? 4 : 1) + 0.01 * round;
      values.push_back(round % 2 == 0 ? x : std::round(4 * x) / 4);  // odd rounds have ties
    }
    const double centre = round % 5 == 0 ? 0.5 : 0;
    const double scale = round % 7 == 0 ? 1.7 : 1;
    EXPECT_NEAR(kolmogorov_distance_to_normal(values, centre, scale),
                kolmogorov_distance_to_normal_reference(values, centre, scale), 1e-14)
        << round;
  }
}

// The means lie on both sides of the switch between sums around 0 and around the mean.
TEST(Normality, IsInvariantUnderShifts) {
  Random random(5);
  std::vector<double> values;
  for (int i = 0; i < 500; ++i) {
    const double x = random.normal();
    values.push_back(x + 0.3 * x * x);
  }
  const auto expected = measure_normality(values, central_power_sums(values, 0));
  EXPECT_GT(expected.skew, 0.1);
  for (const double shift : {-0.295, -0.3, -0.305, 30.0}) {
    auto moved = values;
    for (double& x : moved) x += shift;
    const auto found = measure_normality(moved, central_power_sums(moved, 0));
    EXPECT_NEAR(found.skew, expected.skew, 1e-12) << shift;
    EXPECT_NEAR(found.excess_kurtosis, expected.excess_kurtosis, 1e-12) << shift;
    EXPECT_NEAR(found.ks_p, expected.ks_p, 1e-11) << shift;
  }
}

}  // namespace
}  // namespace qkscope
