// Times the products and Fourier transforms of the analyses, in their shapes, against OpenBLAS,
// Eigen and FFTW: one thread, processor time, alternating, best of 41. Prints the rows of a table.
#include <algorithm>
#include <complex>
#include <ctime>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <Eigen/Eigenvalues>
#include <cblas.h>
#include <fftw3.h>
#include <fmt/core.h>

#include "base/numerics/matrix.h"
#include "base/numerics/nufft.h"
#include "base/numerics/phase_sums.h"
#include "base/numerics/products.h"
#include "base/numerics/random.h"
#include "qkscope/experimental/cpu.h"

// LAPACK's divide-and-conquer eigensolver for symmetric matrices, included in OpenBLAS.
extern "C" void dsyevd_(const char* jobz, const char* uplo, const int* n, double* a, const int* lda,
                        double* w, double* work, const int* lwork, int* iwork, const int* liwork,
                        int* info);

namespace qkscope {
namespace {

using RowMajor = ::Eigen::Matrix<double, -1, -1, ::Eigen::RowMajor>;
using View = ::Eigen::Map<const RowMajor>;
using Written = ::Eigen::Map<RowMajor>;

constexpr int kDim = 128;
constexpr int kRows = 8000;
constexpr int kBlock = 256;

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void race(const std::string& what, const std::vector<std::function<void()>>& ways) {
  std::vector<double> best(ways.size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < 41; ++round)
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const double start = processor_seconds();
      ways[i]();
      best[i] = std::min(best[i], processor_seconds() - start);
    }
  fmt::print("| {} |", what);
  for (const double seconds : best) fmt::print(" {:.3f} |", 1e3 * seconds);
  fmt::print("\n");
}

Matrix random_matrix(std::int64_t rows, std::int64_t cols) {
  static Random random(1);
  Matrix matrix(rows, cols);
  for (double& x : matrix.data) x = random.normal();
  return matrix;
}

View view(const Matrix& matrix) {
  return {matrix.data.data(), matrix.rows, matrix.cols};
}

int as_int(std::int64_t value) {
  return static_cast<int>(value);
}

// Times left (m, k) times the transpose of right (n, k), `times` times in each library.
void race_transposed(const std::string& what, const Matrix& left, const Matrix& right, int times,
                     const std::function<void()>& ours) {
  Matrix out(left.rows, right.rows);
  const auto repeat = [times](auto body) {
    return [=] {
      for (int i = 0; i < times; ++i) body();
    };
  };
  const auto blas = [&] {
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, as_int(left.rows), as_int(right.rows),
                as_int(left.cols), 1, left.data.data(), as_int(left.cols), right.data.data(),
                as_int(right.cols), 0, out.data.data(), as_int(out.cols));
  };
  const auto eigen = [&] {
    Written(out.data.data(), out.rows, out.cols).noalias() = view(left) * view(right).transpose();
  };
  race(what, {repeat(ours), repeat(blas), repeat(eigen)});
}

// Product of scores and separabilities: both matrices are row-major.
void race_rows(const std::string& what, const Matrix& left, const Matrix& right, int times) {
  Matrix out;
  race_transposed(what, left, right, times, [&] { out = multiply_by_transpose(left, right); });
}

// Product of projections: the right matrix is packed in panels of eight columns, and the output
// stays in panels.
void race_panels(const std::string& what, const Matrix& left, const Matrix& right, int times) {
  constexpr std::int64_t kLines = 64;
  const std::int64_t panels = (right.rows + kPanelColumns - 1) / kPanelColumns;
  const Matrix packed = random_matrix(panels * right.cols, kPanelColumns);
  double out[kLines * kPanelColumns];
  race_transposed(what, left, right, times, [&] {
    for (std::int64_t i = 0; i < left.rows; i += kLines)
      for (std::int64_t panel = 0; panel < panels; ++panel)
        multiply_panel(left.row(i), kLines, left.cols, packed.row(panel * left.cols), out);
  });
}

void race_gram() {
  const Matrix rows = random_matrix(kRows, kDim);
  Matrix sum(kDim, kDim);
  const auto blocks = [&](auto body) {
    return [&rows, body] {
      for (std::int64_t i = 0; i < kRows; i += kBlock)
        body(rows.row(i), std::min<std::int64_t>(kBlock, kRows - i));
    };
  };
  race("scatter of 8,000 rows, 256 at a time",
       {blocks([&](const double* x, std::int64_t count) { add_gram(x, count, sum); }),
        blocks([&](const double* x, std::int64_t count) {
          cblas_dsyrk(CblasRowMajor, CblasUpper, CblasTrans, kDim, as_int(count), 1, x, kDim, 1,
                      sum.data.data(), kDim);
        }),
        blocks([&](const double* x, std::int64_t count) {
          Written(sum.data.data(), kDim, kDim)
              .selfadjointView<::Eigen::Upper>()
              .rankUpdate(View(x, count, kDim).transpose());
        })});
}

void race_eigenvectors(int size) {
  const Matrix x = random_matrix(8 * size, size);
  Matrix covariance(size, size);
  add_gram(x.data.data(), x.rows, covariance);
  mirror_upper_triangle(covariance);
  const int work_size = 1 + 6 * size + 2 * size * size;
  const int integer_size = 3 + 5 * size;
  std::vector<double> work(static_cast<std::size_t>(work_size));
  std::vector<int> integers(static_cast<std::size_t>(integer_size));
  std::vector<double> values(static_cast<std::size_t>(size));
  race(fmt::format("eigenvectors, {} dimensions", size),
       {[&] { symmetric_eigenpairs(covariance); },
        [&] {
          Matrix vectors = covariance;
          int info = 0;
          dsyevd_("V", "L", &size, vectors.data.data(), &size, values.data(), work.data(),
                  &work_size, integers.data(), &integer_size, &info);
        },
        [&] {
          const ::Eigen::SelfAdjointEigenSolver<RowMajor> solver(view(covariance));
          values[0] = solver.eigenvalues()[0];
        }});
}

void race_transforms(int size) {
  const int times = std::max(1, 4 * 65536 / size);
  const auto fft = Fft::find_or_make_cached(static_cast<std::size_t>(size));
  std::vector<FourComplex> signal(static_cast<std::size_t>(size) / 4);
  std::vector<std::complex<float>> from(static_cast<std::size_t>(size));
  auto to = from;
  const auto plan =
      fftwf_plan_dft_1d(size, reinterpret_cast<fftwf_complex*>(from.data()),
                        reinterpret_cast<fftwf_complex*>(to.data()), FFTW_FORWARD, FFTW_ESTIMATE);
  race(fmt::format("{} signals of {}", times, size), {[&] {
                                                        for (int i = 0; i < times; ++i)
                                                          fft->transform_in_place(signal);
                                                      },
                                                      [&] {
                                                        for (int i = 0; i < times; ++i)
                                                          fftwf_execute(plan);
                                                      }});
  fftwf_destroy_plan(plan);
}

void race_spectrum(int length) {
  constexpr std::size_t kPoints = 16000;
  Random random(2);
  std::vector<std::int32_t> positions;
  for (std::size_t i = 0; i < kPoints; ++i)
    positions.push_back(
        static_cast<std::int32_t>(random.next_below(static_cast<std::uint64_t>(length))));
  const SortedPositions order(positions);
  Nufft spectrum(order.offsets(), order.position_extent(), {0, 1});
  std::vector<std::complex<double>> values(kPoints);
  for (auto& value : values) value = {random.normal(), random.normal()};
  race(fmt::format("4 spectra of 16,000 rows over {} tokens", length), {[&] {
         for (int i = 0; i < 4; ++i) spectrum.compute_spectrum(values);
       }});
}

void run() {
  openblas_set_num_threads(1);
  fmt::print("{}; {}\n\n| milliseconds | ours | OpenBLAS | Eigen |\n| --- | --- | --- | --- |\n",
             cpu_target(), openblas_get_config());
  race_gram();
  const Matrix rows = random_matrix(kRows, kDim);
  race_panels("8,000 rows on 60 axes", rows, random_matrix(60, kDim), 1);
  const Matrix squares = random_matrix(kDim, kDim);
  for (const int columns : {1, 5, 16})
    race_panels(fmt::format("variances of 128 pairs, {} columns, 60 times", columns),
                random_matrix(columns, kDim), squares, 60);
  race_rows("8,000 keys times 16 means", rows, random_matrix(16, kDim), 1);
  race_rows("256 rows on 30 lines, 31 times", random_matrix(30, kDim), random_matrix(kBlock, kDim),
            31);
  for (const int size : {64, 80, 96, 128, 256}) race_eigenvectors(size);
  fmt::print("\n| milliseconds | ours | FFTW |\n| --- | --- | --- |\n");
  for (const int size : {2048, 8192, 65536, 131072}) race_transforms(size);
  for (const int length : {131072, 4096}) race_spectrum(length);
}

}  // namespace
}  // namespace qkscope

int main() {
  qkscope::run();
}
