#include <bit>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/core/cpu_target.h"
#include "base/core/error.h"
#include "base/numerics/matrix.h"
#include "base/numerics/products.h"
#include "base/numerics/random.h"
#include "cpu_targets.h"

namespace qkscope {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Gram matrix of fixed numbers that do not depend on the math library.
Matrix gram_of(std::int64_t rows, std::int64_t size, std::uint64_t seed) {
  Random random(seed);
  Matrix x(rows, size);
  for (double& value : x.data)
    value = static_cast<double>(random.next_below(1 << 30)) / (1 << 29) - 1;
  Matrix gram(size, size);
  add_gram(x.data.data(), rows, gram);
  mirror_upper_triangle(gram);
  return gram;
}

TEST(SymmetricEigen, VectorsAreOrthonormalAndSolveTheirEquation) {
  for (const std::int64_t size : {1, 2, 7, 64, 128})
    for (const std::int64_t rows : {size / 2 + 1, 4 * size}) {  // rank-deficient and full rank
      const Matrix matrix = gram_of(rows, size, 1);
      const Eigenpairs eigen = symmetric_eigenpairs(matrix);
      // Backward stable: errors are a few units in the last place of the largest eigenvalue.
      const double bound = 1e-14 * static_cast<double>(size) * eigen.values[0];
      const Matrix images = multiply(eigen.vectors, matrix);
      const Matrix products = multiply_by_transpose(eigen.vectors, eigen.vectors);
      for (std::int64_t i = 0; i < size; ++i) {
        const double value = eigen.values[static_cast<std::size_t>(i)];
        if (i > 0) {
          EXPECT_LE(value, eigen.values[static_cast<std::size_t>(i - 1)]);
        }
        for (std::int64_t j = 0; j < size; ++j) {
          EXPECT_NEAR(images(i, j), value * eigen.vectors(i, j), bound);
          EXPECT_NEAR(products(i, j), i == j ? 1 : 0, 1e-14 * static_cast<double>(size));
        }
      }
    }
}

void check_leading(const Matrix& matrix, std::int64_t count) {
  const Eigenpairs all = symmetric_eigenpairs(matrix);
  const Eigenpairs leading = leading_eigenpairs(matrix, count);
  EXPECT_EQ(leading.values, all.values);
  ASSERT_GE(leading.vectors.rows, count);
  const Matrix images = multiply(leading.vectors, matrix);
  const Matrix products = multiply_by_transpose(leading.vectors, leading.vectors);
  const double bound = 1e-14 * static_cast<double>(matrix.rows);
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = leading.values[static_cast<std::size_t>(i)];
    for (std::int64_t j = 0; j < matrix.rows; ++j)
      EXPECT_NEAR(images(i, j), value * leading.vectors(i, j), bound * leading.values[0]);
    for (std::int64_t j = 0; j < count; ++j)
      EXPECT_NEAR(products(i, j), i == j ? 1 : 0, bound) << matrix.rows << " " << count;
  }
}

// As accurate as the full decomposition, even with repeated eigenvalues or pure rounding error.
TEST(SymmetricEigen, LeadingVectorsSolveTheirEquation) {
  for (const std::int64_t size : {1, 2, 16, 40, 128})
    for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{3}, size / 2 + 1, 4 * size}) {
      Matrix matrix = gram_of(rows, size, 5);
      // Without rows: a diagonal matrix with three distinct eigenvalues.
      for (std::int64_t i = 0; rows == 0 && i < size; ++i)
        matrix(i, i) = 1 + static_cast<double>(i % 3);
      for (const auto count : {std::min<std::int64_t>(10, size), size / 2})
        check_leading(matrix, count);
    }
}

TEST(SymmetricEigen, ZeroDiagonalAndRankOneMatrices) {
  Matrix matrix(5, 5);
  EXPECT_THAT(symmetric_eigenpairs(matrix).values, testing::Each(0.0));
  for (std::int64_t i = 0; i < 5; ++i) matrix(i, i) = std::ldexp(1.0, 200 * static_cast<int>(i));
  EXPECT_THAT(symmetric_eigenpairs(matrix).values,
              testing::ElementsAre(0x1p800, 0x1p600, 0x1p400, 0x1p200, 1));
  for (double& x : matrix.data) x = 2;
  const Eigenpairs ones = symmetric_eigenpairs(matrix);
  EXPECT_NEAR(ones.values[0], 10, 1e-14);
  EXPECT_NEAR(std::abs(ones.vectors(0, 3)), 1 / std::sqrt(5.0), 1e-15);
  for (std::size_t i = 1; i < 5; ++i) EXPECT_NEAR(ones.values[i], 0, 1e-14);
}

// Adding and subtracting another Gram matrix leaves rounding errors in a rank-deficient matrix,
// which must not prevent convergence.
TEST(SymmetricEigen, RankDeficientMatricesConverge) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Matrix matrix = gram_of(2 + static_cast<std::int64_t>(seed % 20), 64, seed);
    const Matrix others = gram_of(30, 64, 1000 + seed);
    for (std::size_t i = 0; i < matrix.data.size(); ++i) {
      const double sum = matrix.data[i] + others.data[i];
      matrix.data[i] = sum - others.data[i];
    }
    const Eigenpairs eigen = symmetric_eigenpairs(matrix);
    EXPECT_NEAR(eigen.values.back(), 0, 1e-12);
    const auto image = multiply(matrix, std::span<const double>(eigen.vectors.row(0), 64));
    for (std::int64_t j = 0; j < 64; ++j)
      EXPECT_NEAR(image[static_cast<std::size_t>(j)], eigen.values[0] * eigen.vectors(0, j), 1e-11);
  }
}

TEST(SymmetricEigen, AnEmptyMatrixHasNoEigenpairs) {
  EXPECT_TRUE(symmetric_eigenpairs(Matrix(0, 0)).values.empty());
}

TEST(SymmetricEigen, NotANumberDoesNotConverge) {
  Matrix matrix = gram_of(8, 4, 2);
  matrix(1, 2) = matrix(2, 1) = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT([&] { symmetric_eigenpairs(matrix); },
              ThrowsMessage<Error>(HasSubstr("did not converge")));
}

std::uint64_t digest_of_eigenvectors() {
  const Eigenpairs eigen = symmetric_eigenpairs(gram_of(200, 96, 3));
  std::uint64_t digest = 0xcbf29ce484222325ULL;  // FNV-1a over words
  for (const std::span<const double> numbers :
       {std::span<const double>(eigen.values), std::span<const double>(eigen.vectors.data)})
    for (const double x : numbers)
      digest = (digest ^ std::bit_cast<std::uint64_t>(x)) * 0x100000001b3ULL;
  return digest;
}

TEST(SymmetricEigen, GivesTheSameBitsUnderEveryTarget) {
  for_each_cpu_target([](const std::string& target) {
    if (cpu_target_has_fma(target)) {
      EXPECT_EQ(digest_of_eigenvectors(), 12254519010556089705ULL) << target;
    }
  });
}

}  // namespace
}  // namespace qkscope
