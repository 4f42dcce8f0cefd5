// The fast loops against plain ones.
#include <algorithm>
#include <cmath>
#include <complex>

#include <gtest/gtest.h>

#include "analysis/kernels/plane_units.h"
#include "numerics/kolmogorov.h"
#include "numerics/normal.h"
#include "numerics/random.h"
#include "numerics/spectrum.h"
#include "planted_rows.h"

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

TEST(Kernels, ProductsOfAllShapes) {
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

TEST(Kernels, GramOfAllShapes) {
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

TEST(Kernels, KolmogorovDistanceAgreesWithSorting) {
  for (int round = 0; round < 60; ++round) {
    Random random(static_cast<std::uint64_t>(round));
    std::vector<double> values;
    const auto count = 1 + random.below(3000);
    for (std::uint64_t i = 0; i < count; ++i) {
      const double x = random.normal() * (round % 3 == 0 ? 4 : 1) + 0.01 * round;
      values.push_back(round % 2 == 0 ? x : std::round(4 * x) / 4);  // with ties, too
    }
    const double found = kolmogorov_distance_to_normal(values);
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

TEST(Kernels, UnitVectorsPointWhereTheRowsDo) {
  const auto head = plant(small_head(3), 3);
  const Matrix basis = planted_basis(small_head(3));
  Matrix axes(6, 8);
  std::copy_n(basis.data.begin(), axes.data.size(), axes.data.begin());
  const auto count = head.queries.size();
  PlaneUnits units(axes, count);
  std::vector<std::uint32_t> backwards;
  for (std::int64_t i = 0; i < count; ++i)
    backwards.push_back(static_cast<std::uint32_t>(count - 1 - i));
  units.project(head.queries, head.pooled, backwards);
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t plane = 0; plane < 3; ++plane) {
      double x = 0;
      double y = 0;
      for (std::int64_t j = 0; j < 8; ++j) {
        const auto at = static_cast<std::size_t>(j);
        const double value =
            head.query_rows.vectors[static_cast<std::size_t>(8 * i + j)] - head.pooled.mean[at];
        x += value * axes(2 * plane, j);
        y += value * axes(2 * plane + 1, j);
      }
      const double angle = std::atan2(y, x);
      const auto& unit = units.group(0)[backwards[static_cast<std::size_t>(i)]];
      EXPECT_NEAR(unit.re[plane], std::cos(angle), 1e-12);
      EXPECT_NEAR(unit.im[plane], std::sin(angle), 1e-12);
    }
}

// Up to the highest frequency asked for the grid holds the sums, to what the kernel promises.
TEST(Kernels, SpectrumAgreesWithTheSums) {
  for (const double highest : {0.3, 1.0, 2.0, 3.1}) {
    Random random(7);
    std::vector<std::int32_t> offsets;
    std::vector<FourValues> values(500);
    for (auto& value : values) {
      offsets.push_back(static_cast<std::int32_t>(random.below(3000)));
      for (int lane = 0; lane < 4; ++lane) {
        value.re[lane] = random.normal();
        value.im[lane] = random.normal();
      }
    }
    Spectrum spectrum(offsets, 3000, highest);
    spectrum.compute(values);
    const double size = std::sqrt(2.0 * static_cast<double>(values.size()));  // of a typical sum
    const auto last = static_cast<std::int64_t>(highest / spectrum.step());
    for (std::int64_t k = -last; k <= last; k += 37) {
      std::complex<double> sum;
      const double omega = static_cast<double>(k) * spectrum.step();
      for (std::size_t i = 0; i < values.size(); ++i)
        sum += std::complex<double>(values[i].re[1], values[i].im[1]) *
               std::polar(1.0, -omega * (offsets[i] - spectrum.origin()));
      EXPECT_LT(std::abs(spectrum.at(k, 1) - sum), 5e-3 * size) << highest << " " << k;
    }
  }
}

}  // namespace
}  // namespace qkscope
