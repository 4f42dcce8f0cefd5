// The fast loops against plain ones.
#include "base/numerics/products.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/numerics/kolmogorov.h"
#include "base/numerics/normal.h"
#include "base/numerics/normality.h"
#include "base/numerics/random.h"
#include "cpu_targets.h"

namespace qkscope {
namespace {

Matrix random_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Random random(seed);
  Matrix matrix(rows, cols);
  for (double& x : matrix.data) x = random.normal();
  return matrix;
}

// Only the order of additions differs.
constexpr double kRounding = 1e-13;

void check_products_of_all_shapes() {
  for (const std::int64_t rows : {1, 2, 4, 5, 6, 11})
    for (const std::int64_t depth : {1, 3, 8, 130})
      for (const std::int64_t cols : {1, 7, 8, 9, 16}) {
        const Matrix left = random_matrix(rows, depth, 1);
        const Matrix right = random_matrix(depth, cols, 2);
        const Matrix turned = random_matrix(cols, depth, 3);
        const Matrix product = multiply(left, right);
        const Matrix product_turned = multiply_transposed(left, turned);
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

TEST(Kernels, ProductsOfAllShapes) {
  for_each_cpu_target([](const std::string&) { check_products_of_all_shapes(); });
}

void check_gram_of_all_shapes() {
  for (const std::int64_t rows : {1, 63, 64, 150})
    for (const std::int64_t cols : {1, 5, 8, 13, 32}) {
      const Matrix x = random_matrix(rows, cols, 4);
      Matrix gram(cols, cols);
      add_gram(x.data.data(), rows, gram);
      fill_lower_triangle(gram);
      for (std::int64_t i = 0; i < cols; ++i)
        for (std::int64_t j = 0; j < cols; ++j) {
          double sum = 0;
          for (std::int64_t k = 0; k < rows; ++k) sum += x(k, i) * x(k, j);
          EXPECT_NEAR(gram(i, j), sum, kRounding * 100);
        }
    }
}

TEST(Kernels, GramOfAllShapes) {
  for_each_cpu_target([](const std::string&) { check_gram_of_all_shapes(); });
}

void check_rows_side_by_side() {
  for (const std::int64_t rows : {1, 3, 4, 8, 13})
    for (const std::int64_t cols : {1, 2, 7, 8, 19}) {
      const Matrix x = random_matrix(rows, cols, 5);
      const std::vector<float> narrow(x.data.begin(), x.data.end());
      const Matrix mean = random_matrix(1, cols, 6);
      std::vector<double> out(static_cast<std::size_t>(filled_up(rows) * cols), -1.0);
      std::vector<const float*> starts;
      for (std::int64_t i = 0; i < rows; ++i) starts.push_back(narrow.data() + i * cols);
      centre_side_by_side(starts, mean.data, out.data());
      for (std::int64_t i = 0; i < filled_up(rows); ++i)
        for (std::int64_t j = 0; j < cols; ++j) {
          const double expected =
              i < rows ? narrow[static_cast<std::size_t>(i * cols + j)] - mean(0, j) : 0.0;
          const auto at = (i / kSideBySide * cols + j) * kSideBySide + i % kSideBySide;
          EXPECT_EQ(out[static_cast<std::size_t>(at)], expected) << rows << " " << cols;
        }
    }
}

TEST(Kernels, RowsSideBySide) {
  for_each_cpu_target([](const std::string&) { check_rows_side_by_side(); });
}

void check_narrow_products() {
  for (const std::int64_t rows : {1, 3, 5, 8, 16, 39})
    for (const std::int64_t columns : {1, 2, 3, 5, 8, 9, 16, 19}) {
      const Matrix left = random_matrix(rows, 37, 5);
      const Matrix right = random_matrix(37, columns + 9, 6);  // from its third column on
      constexpr double kUntouched = -7;
      Matrix product(rows + kPanelColumns, columns);  // and what may be written behind it
      std::fill(product.data.begin(), product.data.end(), kUntouched);
      multiply_narrow(left.data.data(), rows, 37, right.row(0) + 2, right.cols, columns,
                      product.data.data());
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) {
          double sum = 0;
          for (std::int64_t k = 0; k < 37; ++k) sum += left(i, k) * right(k, j + 2);
          EXPECT_NEAR(product(i, j), sum, kRounding * 10);
        }
      const auto behind = product.data.begin() + rows * columns + kPanelColumns - 1;
      EXPECT_TRUE(
          std::all_of(behind, product.data.end(), [](double x) { return x == kUntouched; }));
    }
}

TEST(Kernels, NarrowProductsOfAllShapes) {
  for_each_cpu_target([](const std::string&) { check_narrow_products(); });
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
    const WeightedSum sums[] = {{weight.data, weighted}};
    add_centred_gram(rows.data(), some, mean.data, gram, sums);
    fill_lower_triangle(gram);
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

TEST(Kernels, GramOfCentredRows) {
  for_each_cpu_target([](const std::string&) { check_centred_gram(); });
}

// As dot() has them, to the last bit.
void check_dots() {
  for (const std::int64_t cols : {1, 15, 16, 40, 128})
    for (const std::int64_t count : {1, 2, 5}) {
      const Matrix x = random_matrix(count, cols, 10);
      const std::vector<float> rows(x.data.begin(), x.data.end());
      const Matrix y = random_matrix(1, cols, 11);
      std::vector<double> found(static_cast<std::size_t>(count));
      dots(rows.data(), count, y.data, found.data());
      const auto width = static_cast<std::size_t>(cols);
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(found[i], dot(std::span(rows).subspan(i * width, width), y.data));
    }
}

TEST(Kernels, DotsOfManyRows) {
  for_each_cpu_target([](const std::string&) { check_dots(); });
}

TEST(Kernels, KolmogorovDistanceAgreesWithSorting) {
  for (int round = 0; round < 60; ++round) {
    Random random(static_cast<std::uint64_t>(round));
    std::vector<double> values;
    const auto count = 1 + random.below(3000);
    for (std::uint64_t i = 0; i < count; ++i) {
      const double x = random.normal() * (round % 3 == 0 ? 4 : 1) + 0.01 * round;
      values.push_back(round % 2 == 0 ? x : std::round(4 * x) / 4);  // with ties, too
    }
    const double found = kolmogorov_distance_to_normal(values, 0, 1);
    std::sort(values.begin(), values.end());
    double distance = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double cdf = normal_cdf(values[i]);
      const auto n = static_cast<double>(values.size());
      distance = std::max(
          {distance, static_cast<double>(i + 1) / n - cdf, cdf - static_cast<double>(i) / n});
    }
    EXPECT_NEAR(found, distance, 1e-14) << round;
  }
}

// Sums around 0 and around the mean say the same, be the mean small beside the spread or large.
TEST(Normality, DoesNotDependOnWhereTheValuesLie) {
  Random random(5);
  std::vector<double> values;
  for (int i = 0; i < 500; ++i) {
    const double x = random.normal();
    values.push_back(x + 0.3 * x * x);
  }
  const auto expected = normality_of(values, powers_around(values, 0));
  EXPECT_GT(expected.skew, 0.1);
  for (const double shift : {-0.295, -0.3, -0.305, 30.0}) {
    auto moved = values;
    for (double& x : moved) x += shift;
    const auto found = normality_of(moved, powers_around(moved, 0));
    EXPECT_NEAR(found.skew, expected.skew, 1e-12) << shift;
    EXPECT_NEAR(found.excess_kurtosis, expected.excess_kurtosis, 1e-12) << shift;
    EXPECT_NEAR(found.ks_p, expected.ks_p, 1e-11) << shift;
  }
}

}  // namespace
}  // namespace qkscope
