// A dense row-major matrix of doubles, and reflections; products are in products.h, eigenvectors in
// symmetric_eigen.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/numerics/line_vector.h"
#include "base/numerics/vectors.h"

namespace qkscope {

struct Matrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  LineVector<double> data;  // (rows, cols)

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

}  // namespace qkscope
