#include "numerics/matrix.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include <cblas.h>

#include "core/error.h"
#include "numerics/tile.h"

// LAPACK's divide and conquer for symmetric matrices; OpenBLAS carries it.
extern "C" void dsyevd_(const char* jobz, const char* uplo, const int* n, double* a, const int* lda,
                        double* w, double* work, const int* lwork, int* iwork, const int* liwork,
                        int* info);

namespace qkscope {
namespace {

// OpenBLAS has one number of threads for the whole process.
struct {
  std::mutex mutex;
  int users = 0;
  int before = 0;  // what the process had set
} g_one_blas_thread;

int as_int(std::int64_t value) {
  return static_cast<int>(value);
}

// Eight running sums, so that the additions do not wait for one another.
template <typename Term>
double sum_of(std::span<const double> x, const Term& term) {
  double part[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= x.size(); i += 8)
    for (std::size_t lane = 0; lane < 8; ++lane) part[lane] += term(x[i + lane]);
  double total = 0;
  for (; i < x.size(); ++i) total += term(x[i]);
  for (const double value : part) total += value;
  return total;
}

// A matrix (depth, columns) cut into panels of eight columns, the last filled up with zeros.
struct PackedColumns {
  std::int64_t depth;
  std::int64_t columns;
  std::vector<double> data;  // (panels, depth, 8)

  PackedColumns(const Matrix& matrix, bool transposed)
      : depth(transposed ? matrix.cols : matrix.rows),
        columns(transposed ? matrix.rows : matrix.cols),
        data(static_cast<std::size_t>((columns + kTileColumns - 1) / kTileColumns * depth *
                                      kTileColumns)) {
    for (std::int64_t column = 0; column < columns; ++column) {
      double* const to = data.data() + column / kTileColumns * depth * kTileColumns;
      for (std::int64_t k = 0; k < depth; ++k)
        to[k * kTileColumns + column % kTileColumns] =
            transposed ? matrix(column, k) : matrix(k, column);
    }
  }
};

// Columns of a packed matrix as the rows of its transpose.
template <int kRows>
struct PackedLeft {
  const double* column[kRows];
  double operator()(int row, std::int64_t k) const { return column[row][k * kTileColumns]; }
};

Matrix multiply_packed(const Matrix& left, const PackedColumns& right) {
  Matrix product(left.rows, right.columns);
  const auto depth = right.depth;
  const auto add_rows = [&](std::int64_t first, auto tile_rows) {
    const double* const rows = left.row(first);
    for (std::int64_t column = 0; column < right.columns; column += kTileColumns) {
      double out[tile_rows * kTileColumns];
      tile_product<tile_rows>(depth, RowsOf{rows, depth}, right.data.data() + column * depth, out);
      const auto used = std::min<std::int64_t>(kTileColumns, right.columns - column);
      for (int row = 0; row < tile_rows; ++row)
        std::copy_n(out + row * kTileColumns, used, product.row(first + row) + column);
    }
  };
  for (std::int64_t row = 0; row < left.rows;)
    row += with_tile_rows(left.rows - row, [&](auto tile_rows) { add_rows(row, tile_rows); });
  return product;
}

}  // namespace

double sum(std::span<const double> x) {
  return sum_of(x, [](double value) { return value; });
}

double squares_around(std::span<const double> x, double centre) {
  return sum_of(x, [&](double value) { return (value - centre) * (value - centre); });
}

double dot(std::span<const double> x, std::span<const double> y) {
  return cblas_ddot(as_int(std::ssize(x)), x.data(), 1, y.data(), 1);
}

double norm(std::span<const double> x) {
  return cblas_dnrm2(as_int(std::ssize(x)), x.data(), 1);
}

Matrix multiply(const Matrix& left, const Matrix& right) {
  QKSCOPE_ASSERT(left.cols == right.rows);
  return multiply_packed(left, PackedColumns(right, false));
}

Matrix multiply_transposed(const Matrix& left, const Matrix& right) {
  QKSCOPE_ASSERT(left.cols == right.cols);
  return multiply_packed(left, PackedColumns(right, true));
}

void add_gram(const double* rows, std::int64_t count, Matrix& sum) {
  const auto n = sum.cols;
  const auto panels = (n + kTileColumns - 1) / kTileColumns;
  constexpr std::int64_t kDepth = 64;  // rows at a time: they stay in the first cache
  // Eight columns side by side, so that a tile reads memory in order: (panels, depth, 8).
  std::vector<double> packed(static_cast<std::size_t>(panels * kDepth * kTileColumns));
  const auto column = [&](std::int64_t j) {
    return packed.data() + (j / kTileColumns * kDepth) * kTileColumns + j % kTileColumns;
  };
  for (std::int64_t begin = 0; begin < count; begin += kDepth) {
    const auto depth = std::min(kDepth, count - begin);
    for (std::int64_t k = 0; k < depth; ++k)
      for (std::int64_t j = 0; j < n; j += kTileColumns)
        std::copy_n(rows + (begin + k) * n + j, std::min<std::int64_t>(kTileColumns, n - j),
                    column(j) + k * kTileColumns);
    const auto add_tile = [&](std::int64_t i, std::int64_t j, auto tile_rows) {
      PackedLeft<tile_rows> left;
      for (int row = 0; row < tile_rows; ++row) left.column[row] = column(i + row);
      double out[tile_rows * kTileColumns];
      tile_product<tile_rows>(depth, left, column(j), out);
      const auto used = std::min<std::int64_t>(kTileColumns, n - j);
      for (int row = 0; row < tile_rows; ++row)
        for (std::int64_t c = 0; c < used; ++c) sum(i + row, j + c) += out[row * kTileColumns + c];
    };
    for (std::int64_t i = 0; i < n;)
      i += with_tile_rows(n - i, [&](auto tile_rows) {
        for (std::int64_t j = i / kTileColumns * kTileColumns; j < n; j += kTileColumns)
          add_tile(i, j, tile_rows);
      });
  }
}

void fill_lower_triangle(Matrix& matrix) {
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    for (std::int64_t j = 0; j < i; ++j) matrix(i, j) = matrix(j, i);
}

std::vector<double> multiply(const Matrix& matrix, std::span<const double> x) {
  QKSCOPE_ASSERT(matrix.cols == std::ssize(x));
  std::vector<double> product(static_cast<std::size_t>(matrix.rows));
  if (product.empty()) return product;
  cblas_dgemv(CblasRowMajor, CblasNoTrans, as_int(matrix.rows), as_int(matrix.cols), 1.0,
              matrix.data.data(), as_int(matrix.cols), x.data(), 1, 0.0, product.data(), 1);
  return product;
}

double quadratic_form(const Matrix& matrix, std::span<const double> x) {
  return dot(multiply(matrix, x), x);
}

double trace(const Matrix& matrix) {
  double sum = 0;
  for (std::int64_t i = 0; i < matrix.rows; ++i) sum += matrix(i, i);
  return sum;
}

std::vector<double> householder_between(std::span<const double> from, std::span<const double> to) {
  std::vector<double> w;
  for (std::size_t i = 0; i < from.size(); ++i) w.push_back(from[i] - to[i]);
  const double length = norm(w);
  if (length < 1e-15) return {};
  for (double& x : w) x /= length;
  return w;
}

void reflect(std::span<double> x, std::span<const double> w) {
  if (w.empty()) return;
  const double twice = 2 * dot(x, w);
  for (std::size_t j = 0; j < w.size(); ++j) x[j] -= twice * w[j];
}

void reflect_rows(Matrix& rows, std::span<const double> w) {
  for (std::int64_t i = 0; i < rows.rows; ++i) reflect({rows.row(i), w.size()}, w);
}

Eigen symmetric_eigen(const Matrix& matrix) {
  QKSCOPE_ASSERT(matrix.rows == matrix.cols);
  const int n = as_int(matrix.rows);
  Eigen result{std::vector<double>(matrix.data.size() ? static_cast<std::size_t>(n) : 0), matrix};
  if (n == 0) return result;
  const int work_size = 1 + 6 * n + 2 * n * n;
  const int integer_size = 3 + 5 * n;
  std::vector<double> work(static_cast<std::size_t>(work_size));
  std::vector<int> integers(static_cast<std::size_t>(integer_size));
  int info = 0;
  // Column-major and row-major are the same for a symmetric matrix; eigenvector i comes back as
  // column i of theirs, which is row i of ours.
  dsyevd_("V", "L", &n, result.vectors.data.data(), &n, result.values.data(), work.data(),
          &work_size, integers.data(), &integer_size, &info);
  if (info != 0)
    failure("eigenvalues of a {0} x {0} covariance did not converge (LAPACK dsyevd says {1})", n,
            info);
  std::reverse(result.values.begin(), result.values.end());
  for (int i = 0; i < n / 2; ++i)
    std::swap_ranges(result.vectors.row(i), result.vectors.row(i) + n,
                     result.vectors.row(n - 1 - i));
  return result;
}

OneBlasThread::OneBlasThread() {
  const std::lock_guard lock(g_one_blas_thread.mutex);
  if (g_one_blas_thread.users++ > 0) return;
  g_one_blas_thread.before = openblas_get_num_threads();
  openblas_set_num_threads(1);
}

OneBlasThread::~OneBlasThread() {
  const std::lock_guard lock(g_one_blas_thread.mutex);
  if (--g_one_blas_thread.users == 0) openblas_set_num_threads(g_one_blas_thread.before);
}

}  // namespace qkscope
