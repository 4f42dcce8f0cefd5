// A dense row-major matrix of doubles, reflections and eigenvectors; products are in products.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "numerics/vectors.h"

namespace qkscope {

struct Matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::vector<double> data;  // (rows, cols)

  Matrix() = default;
  Matrix(std::int64_t row_count, std::int64_t col_count)
      : rows(row_count), cols(col_count), data(static_cast<std::size_t>(row_count * col_count)) {}

  double* row(std::int64_t i) { return data.data() + i * cols; }
  const double* row(std::int64_t i) const { return data.data() + i * cols; }
  double& operator()(std::int64_t i, std::int64_t j) {
    return data[static_cast<std::size_t>(i * cols + j)];
  }
  double operator()(std::int64_t i, std::int64_t j) const {
    return data[static_cast<std::size_t>(i * cols + j)];
  }
};

// Makes a matrix symmetric whose upper triangle is known.
void fill_lower_triangle(Matrix& matrix);
double trace(const Matrix& matrix);

// The Householder vector w for which I - 2 w w^T takes `from` (unit) to `to` (unit); empty when
// they are equal.
std::vector<double> householder_between(std::span<const double> from, std::span<const double> to);
// x becomes x - 2 w (w.x); nothing when w is empty.
void reflect(std::span<double> x, std::span<const double> w);
void reflect_rows(Matrix& rows, std::span<const double> w);

struct Eigen {
  std::vector<double> values;  // descending
  Matrix vectors;              // (n, n): row i belongs to values[i], unit length
};

// All eigenvalues and eigenvectors of a symmetric matrix; failure when LAPACK does not converge.
Eigen symmetric_eigen(const Matrix& matrix);

// Limits BLAS to one thread while it lives, and gives back what the process had set when the last
// of them goes: the analyses run on all cores head by head, and a product's rounding must not
// depend on the number of threads.
class OneBlasThread {
 public:
  OneBlasThread();
  ~OneBlasThread();
  OneBlasThread(const OneBlasThread&) = delete;
  OneBlasThread& operator=(const OneBlasThread&) = delete;
};

}  // namespace qkscope
