// Level-1 operations on arrays; dense row-major matrices in float64 and float32, with Householder
// reflections, Cholesky decomposition and eigenvectors of symmetric matrices. Products are in
// products.h. Sums use 16 partial sums that are combined in a fixed order, so all targets with
// fused multiply-adds produce identical bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "base/core/numbers.h"

namespace qkscope {

double sum(std::span<const double> x);
double dot(std::span<const double> x, std::span<const double> y);
double dot(std::span<const float> x, std::span<const double> y);
// Matrix-vector product: out (count) = rows (count, cols) times y (cols).
void compute_row_dots(const double* rows, std::int64_t count, std::span<const double> y,
                      double* out);
void compute_row_dots(const float* rows, std::int64_t count, std::span<const double> y,
                      double* out);
double norm(std::span<const double> x);

// Sums of the first four powers of x - centre.
struct PowerSums {
  double first = 0;
  double second = 0;
  double third = 0;
  double fourth = 0;
};
PowerSums central_power_sums(std::span<const double> x, double centre);

// y += factor x.
void add_scaled(double factor, std::span<const double> x, std::span<double> y);

// A row x (cols) with two factors. compute_weighted_sums() computes the sums over the rows of
// weight * x, moment * x and weight * x^2, shape (3, cols).
struct WeightedRow {
  const float* x;  // (cols)
  double weight;
  double moment;
};
void compute_weighted_sums(std::span<const WeightedRow> rows, std::int64_t cols, double* sums);

// Adds the column sums of rows (count, cols) to sum (cols).
void add_column_sums(const float* rows, std::int64_t count, std::span<double> sum);
// Centres rows: out (count, cols) = rows (count, cols) - mean (cols), in float64.
void centre_rows(const float* rows, std::int64_t count, std::span<const double> mean, double* out);

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

void mirror_upper_triangle(Matrix& matrix);
double trace(const Matrix& matrix);

// Returns the Householder vector w for which I - 2 w w^T maps the unit vector `from` to the unit
// vector `to`; empty if they are equal.
std::vector<double> householder_vector(std::span<const double> from, std::span<const double> to);
// Householder reflection x -= 2 w (w . x); no change if w is empty.
void apply_householder(std::span<double> x, std::span<const double> w);
void reflect_rows(Matrix& rows, std::span<const double> w);

// Returns the lower triangular L with L L^T = matrix for a symmetric positive semidefinite matrix.
// Directions without variance have a zero column.
Matrix semidefinite_cholesky(const Matrix& matrix);

struct Eigenpairs {
  std::vector<double> values;  // descending
  Matrix vectors;              // (.., n): row i is the unit eigenvector of values[i]
};

// Returns all eigenpairs. Throws an Error of kind failure if the iteration does not converge (NaN
// input).
Eigenpairs symmetric_eigenpairs(const Matrix& matrix);
// Returns all eigenvalues and the eigenvectors of at least the `count` largest ones (0: eigenvalues
// only). For a small count, takes about half the time of symmetric_eigenpairs().
Eigenpairs leading_eigenpairs(const Matrix& matrix, std::int64_t count);

// Returns the unit eigenvector of the largest eigenvalue of a symmetric matrix, with a residual
// below 1e-10 of the eigenvalue. A `start` close to the eigenvector needs only a few matrix-vector
// products.
std::vector<double> top_eigenvector(const Matrix& matrix, std::span<const double> start);

}  // namespace qkscope
