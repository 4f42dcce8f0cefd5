// Dense row-major matrices in float64 and float32, with Householder reflections, Cholesky
// decomposition and eigenvectors of symmetric matrices. Products are in products.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "base/core/numbers.h"
#include "base/numerics/vectors.h"

namespace qkscope {

// Aligns a vector to a cache line: on x86, loads that cross cache lines are slow.
template <typename T>
struct CacheAlignedAllocator {
  using value_type = T;

  CacheAlignedAllocator() = default;
  template <typename Other>
  CacheAlignedAllocator(const CacheAlignedAllocator<Other>&) noexcept {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kLine));
  }
  void deallocate(T* begin, std::size_t) noexcept { ::operator delete(begin, kLine); }

  bool operator==(const CacheAlignedAllocator&) const { return true; }

 private:
  static constexpr std::align_val_t kLine{64};
};

template <typename T>
using CacheAlignedVector = std::vector<T, CacheAlignedAllocator<T>>;

template <typename T>
struct BasicMatrix {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  CacheAlignedVector<T> data;  // (rows, cols)

  BasicMatrix() = default;
  BasicMatrix(std::int64_t row_count, std::int64_t col_count)
      : rows(row_count), cols(col_count), data(as_index(row_count * col_count)) {}

  T* row(std::int64_t i) { return data.data() + i * cols; }
  const T* row(std::int64_t i) const { return data.data() + i * cols; }
  T& operator()(std::int64_t i, std::int64_t j) { return data[as_index(i * cols + j)]; }
  T operator()(std::int64_t i, std::int64_t j) const { return data[as_index(i * cols + j)]; }
};
using Matrix = BasicMatrix<double>;
using FloatMatrix = BasicMatrix<float>;

// Non-owning view of matrix rows, each padded to a multiple of kBlock columns.
struct PaddedRows {
  static constexpr std::int64_t kBlock = 16;

  double* data = nullptr;
  std::int64_t columns = 0;  // including padding
  std::int64_t stride = 0;   // numbers from row to row, at least `columns`

  double* row(std::int64_t i) const { return data + i * stride; }
};

void fill_lower_triangle(Matrix& matrix);
double trace(const Matrix& matrix);

// Returns the Householder vector w for which I - 2 w w^T maps unit vector `from` to unit vector
// `to`; empty if they are equal.
std::vector<double> householder_between(std::span<const double> from, std::span<const double> to);
// Householder reflection x -= 2 w (w . x); no change if w is empty.
void apply_reflection(std::span<double> x, std::span<const double> w);
void reflect_rows(Matrix& rows, std::span<const double> w);

// Returns the lower triangular L with L L^T = matrix for a symmetric positive semidefinite matrix.
// Directions without variance have a zero column.
Matrix semidefinite_cholesky(const Matrix& matrix);

struct Eigenpairs {
  std::vector<double> values;  // descending
  Matrix vectors;              // (.., n): row i is the unit eigenvector of values[i]
};

// Returns all eigenpairs. Throws a failure error if the iteration does not converge (NaN).
Eigenpairs symmetric_eigen(const Matrix& matrix);
// Returns all eigenvalues and the eigenvectors of at least the `count` largest ones (0: eigenvalues
// only). For a small count, takes about half the time of symmetric_eigen().
Eigenpairs leading_eigenpairs(const Matrix& matrix, std::int64_t count);

// Returns the unit eigenvector of the largest eigenvalue of a symmetric matrix, with a residual
// below 1e-10 of the eigenvalue. A `start` close to the eigenvector needs only a few matrix-vector
// products.
std::vector<double> top_eigenvector(const Matrix& matrix, std::span<const double> start);

}  // namespace qkscope
