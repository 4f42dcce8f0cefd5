#include "numerics/matrix.h"

#include <algorithm>
#include <mutex>

#include <cblas.h>

#include "core/error.h"

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

}  // namespace

void fill_lower_triangle(Matrix& matrix) {
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    for (std::int64_t j = 0; j < i; ++j) matrix(i, j) = matrix(j, i);
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
  add_scaled(-2 * dot(x, w), w, x);
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
