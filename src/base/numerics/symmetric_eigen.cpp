// Householder's reduction to a tridiagonal matrix and the implicit QL iteration (Bowdler, Martin,
// Reinsch and Wilkinson 1968: tred2 and tql2), with the work on whole rows in eigen_kernels.
#include "base/numerics/symmetric_eigen.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/core/error.h"
#include "base/numerics/eigen_kernels.h"
#include "base/numerics/random.h"
#include "base/numerics/vectors.h"

namespace qkscope {
namespace {

constexpr int kMaxSweeps = 60;  // per eigenvalue; two or three are usual
// After so many, what is left beside the diagonal is compared with the whole matrix: a matrix of
// few rows has a block of nothing but rounding errors, which never gets small against itself.
constexpr int kPatience = 10;

// Of the matrix, which is scaled to 1: below it squares are no longer exact.
constexpr double kNothing = 1e-150;

double length_of(double x, double y) {
  return std::sqrt(x * x + y * y);
}

// T = Q^T A Q, tridiagonal.
class Tridiagonal {
 public:
  explicit Tridiagonal(const Matrix& matrix);

  // (size, stride): Q^T, row by row.
  std::vector<double> make_axes();
  // Turns eigenvectors of T, the rows, into those of the matrix.
  void turn_back(Matrix& vectors);
  PaddedRows view(std::vector<double>& axes) const { return {axes.data(), columns_, stride_}; }
  double scale() const { return scale_; }

  std::vector<double> diagonal;  // (size)
  std::vector<double> beside;    // (size): element i stands between rows i and i + 1

 private:
  PaddedRows rows() { return view(work_); }
  // Makes T's row k: reflects what is left of the matrix so that row k ends beside its diagonal.
  void reduce(std::int64_t k);
  // Q times columns. Of columns that begin as those of the identity those before k are left alone
  // by reflection k.
  void reflect_all(PaddedRows columns, bool identity);

  std::int64_t size_;
  std::int64_t columns_;  // with padding
  std::int64_t stride_;
  double scale_ = 0;             // the largest element; T is of the matrix divided by it
  std::vector<double> work_;     // (size, stride): what is left of A; row k keeps reflection k
  std::vector<double> factors_;  // (size)
  std::vector<double> v_;        // (columns): scratch
  std::vector<double> w_;
};

Tridiagonal::Tridiagonal(const Matrix& matrix)
    : diagonal(static_cast<std::size_t>(matrix.rows)),
      beside(diagonal.size()),
      size_(matrix.rows),
      columns_((size_ + kEigenBlock - 1) / kEigenBlock * kEigenBlock),
      // An odd number of blocks: with a power of two all rows would fall on few lines of the cache.
      stride_(columns_ / kEigenBlock % 2 == 0 ? columns_ + kEigenBlock : columns_),
      work_(static_cast<std::size_t>(size_ * stride_)),
      factors_(diagonal.size()),
      v_(static_cast<std::size_t>(columns_)),
      w_(static_cast<std::size_t>(columns_)) {
  for (const double x : matrix.data) scale_ = std::max(scale_, std::abs(x));
  if (scale_ == 0) scale_ = 1;
  for (std::int64_t i = 0; i < size_; ++i)
    for (std::int64_t j = 0; j < size_; ++j) rows().row(i)[j] = matrix(i, j) / scale_;
  for (std::int64_t k = 0; k < size_; ++k) reduce(k);
}

void Tridiagonal::reduce(std::int64_t k) {
  const auto at = static_cast<std::size_t>(k);
  double* row = rows().row(k);
  diagonal[at] = row[k];
  if (k + 1 == size_) return;
  beside[at] = row[k + 1];
  double squares = 0;
  for (std::int64_t j = k + 2; j < size_; ++j) squares += row[j] * row[j];
  if (squares == 0) return;
  // The reflection 1 - factor v v^T takes the rest of row k to its first element.
  const double first = row[k + 1];
  const double length = std::sqrt(first * first + squares);
  beside[at] = first > 0 ? -length : length;
  row[k + 1] = first - beside[at];
  const double factor = 2 / (squares + row[k + 1] * row[k + 1]);
  factors_[at] = factor;
  v_[at] = 0;
  w_[at] = 0;
  std::copy(row + k + 1, row + size_, v_.begin() + k + 1);
  rows_times(rows(), k + 1, size_, k + 1, v_.data(), w_.data());
  double along = 0;
  for (auto j = at + 1; j < v_.size(); ++j) along += v_[j] * w_[j];
  const double half = factor * factor * along / 2;
  for (auto j = at + 1; j < v_.size(); ++j) w_[j] = factor * w_[j] - half * v_[j];
  subtract_products(rows(), k + 1, size_, k + 1, v_.data(), w_.data());
}

std::vector<double> Tridiagonal::make_axes() {
  std::vector<double> q(work_.size());
  const PaddedRows columns = view(q);
  for (std::int64_t i = 0; i < size_; ++i) columns.row(i)[i] = 1;
  reflect_all(columns, true);
  for (std::int64_t i = 0; i < size_; ++i)
    for (std::int64_t j = 0; j < i; ++j) std::swap(columns.row(i)[j], columns.row(j)[i]);
  return q;
}

void Tridiagonal::reflect_all(PaddedRows columns, bool identity) {
  for (std::int64_t k = size_ - 2; k >= 0; --k) {
    const double factor = factors_[static_cast<std::size_t>(k)];
    if (factor == 0) continue;
    std::copy(rows().row(k) + k + 1, rows().row(k) + size_, v_.begin() + k + 1);
    reflect_columns(columns, k + 1, size_, identity ? k + 1 : 0, v_.data(), factor, w_.data());
  }
}

void Tridiagonal::turn_back(Matrix& vectors) {
  const auto padded = (vectors.rows + kEigenBlock - 1) / kEigenBlock * kEigenBlock;
  std::vector<double> columns(static_cast<std::size_t>(size_ * padded));
  for (std::int64_t j = 0; j < vectors.rows; ++j)
    for (std::int64_t i = 0; i < size_; ++i)
      columns[static_cast<std::size_t>(i * padded + j)] = vectors(j, i);
  reflect_all({columns.data(), padded, padded}, false);
  for (std::int64_t j = 0; j < vectors.rows; ++j)
    for (std::int64_t i = 0; i < size_; ++i)
      vectors(j, i) = columns[static_cast<std::size_t>(i * padded + j)];
}

// Turns a tridiagonal matrix into a diagonal one, and the rows of `axes`, where there are any, with
// it.
class Iteration {
 public:
  Iteration(std::vector<double>& diagonal, std::vector<double>& beside, PaddedRows axes)
      : d_(diagonal), e_(beside), axes_(axes) {
    for (std::size_t i = 0; i < d_.size(); ++i)
      largest_ = std::max(largest_, std::abs(d_[i]) + std::abs(e_[i]));
  }

  void run() {
    const auto size = d_.size();
    for (std::size_t i = 0; i < size; ++i)
      for (int sweeps = 0;; ++sweeps) {
        const std::size_t end = block_end(i, sweeps < kPatience ? kNothing : kEpsilon * largest_);
        if (end == i) break;
        if (sweeps == kMaxSweeps)
          failure("eigenvalues of a {0} x {0} covariance did not converge", size);
        sweep(i, end);
      }
  }

 private:
  static constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

  // The last row of the block that begins with row i: the element beside it is nothing.
  std::size_t block_end(std::size_t i, double nothing) const {
    for (; i + 1 < d_.size(); ++i)
      if (std::abs(e_[i]) <= kEpsilon * (std::abs(d_[i]) + std::abs(d_[i + 1])) + nothing) break;
    return i;
  }

  void sweep(std::size_t begin, std::size_t end) {
    cosine_.clear();
    sine_.clear();
    const double half = (d_[begin + 1] - d_[begin]) / (2 * e_[begin]);
    const double root = length_of(half, 1);
    const double shift = d_[begin] - e_[begin] / (half + (half >= 0 ? root : -root));
    double g = d_[end] - shift;
    double s = 1;
    double c = 1;
    double p = 0;
    std::size_t i = end;
    while (i > begin) {
      --i;
      const double f = s * e_[i];
      const double b = c * e_[i];
      const double square = f * f + g * g;
      const double r = std::sqrt(square);
      e_[i + 1] = r;
      if (r < kNothing) {  // the block falls apart
        d_[i + 1] -= p;
        e_[i + 1] = 0;
        break;
      }
      const double inverse = r * (1 / square);  // neither the root nor the quotient waits
      s = f * inverse;
      c = g * inverse;
      g = d_[i + 1] - p;
      const double q = (d_[i] - g) * s + 2 * c * b;
      p = s * q;
      d_[i + 1] = g + p;
      g = c * q - b;
      cosine_.push_back(c);
      sine_.push_back(s);
      if (i == begin) {
        d_[begin] -= p;
        e_[begin] = g;
      }
    }
    e_[end] = 0;
    if (axes_.data != nullptr) rotate_rows(axes_, static_cast<std::int64_t>(end), cosine_, sine_);
  }

  std::vector<double>& d_;
  std::vector<double>& e_;
  PaddedRows axes_;
  double largest_ = 0;
  std::vector<double> cosine_;
  std::vector<double> sine_;
};

// Eigenvectors of a tridiagonal matrix whose eigenvalues are known: (T - value)^-1 makes the part
// along an eigenvector outgrow all others.
class InverseIteration {
 public:
  explicit InverseIteration(const Tridiagonal& matrix)
      : d_(matrix.diagonal), e_(matrix.beside), rows_(matrix.diagonal.size()) {
    for (std::size_t i = 0; i < d_.size(); ++i)
      largest_ = std::max(largest_, std::abs(d_[i]) + std::abs(e_[i]));
  }

  // Makes row i of `vectors`, orthogonal to those before it; false where that does not succeed.
  bool find(double value, std::int64_t i, Matrix& vectors) {
    factorise(value);
    const std::span<double> x(vectors.row(i), d_.size());
    Random random(static_cast<std::uint64_t>(i));  // no eigenvector is orthogonal to all starts
    for (double& number : x) number = random.uniform() - 0.5;
    for (int round = 0; round < kMostRounds; ++round) {
      solve(x);
      along_.resize(static_cast<std::size_t>(i));
      dots(vectors.row(0), i, x, along_.data());
      for (std::int64_t j = 0; j < i; ++j)
        add_scaled(-along_[static_cast<std::size_t>(j)], {vectors.row(j), x.size()}, x);
      const double length = norm(x);
      if (!(length > 0) || !std::isfinite(length)) return false;
      for (double& number : x) number /= length;
      if (round > 0 && residual(value, x) <= kSolved * largest_) return true;
    }
    return false;
  }

 private:
  static constexpr int kMostRounds = 6;  // two are usual
  static constexpr double kSolved = 1e-14;

  // What elimination leaves of a row: 1 / its diagonal and two elements beside it, and what was
  // subtracted from the next row, after the two changed places where that one led by more.
  struct Row {
    double inverse;
    double beside;
    double beyond;
    double factor;
    bool swapped;
  };

  void factorise(double value) {
    const double least = std::numeric_limits<double>::epsilon() * largest_;
    const auto n = d_.size();
    double diagonal = d_[0] - value;
    double beside = n > 1 ? e_[0] : 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double lower = i + 1 < n ? e_[i] : 0;  // the first element of the next row
      const double next = i + 1 < n ? d_[i + 1] - value : 0;
      const double after = i + 2 < n ? e_[i + 1] : 0;
      Row& row = rows_[i];
      row.swapped = std::abs(lower) > std::abs(diagonal);
      if (row.swapped) {
        row = {1 / lower, next, after, diagonal / lower, true};
        diagonal = beside - row.factor * next;
        beside = -row.factor * after;
      } else {
        if (std::abs(diagonal) < least) diagonal = least;
        row = {1 / diagonal, beside, 0, lower / diagonal, false};
        diagonal = next - row.factor * beside;
        beside = after;
      }
    }
  }

  // x = (T - value)^-1 x
  void solve(std::span<double> x) const {
    const auto n = x.size();
    for (std::size_t i = 0; i + 1 < n; ++i) {
      if (rows_[i].swapped) std::swap(x[i], x[i + 1]);
      x[i + 1] -= rows_[i].factor * x[i];
    }
    for (std::size_t i = n; i-- > 0;) {
      if (i + 1 < n) x[i] -= rows_[i].beside * x[i + 1];
      if (i + 2 < n) x[i] -= rows_[i].beyond * x[i + 2];
      x[i] *= rows_[i].inverse;
    }
  }

  // The largest element of T x - value x.
  double residual(double value, std::span<const double> x) const {
    double largest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double image = (d_[i] - value) * x[i];
      if (i > 0) image += e_[i - 1] * x[i - 1];
      if (i + 1 < x.size()) image += e_[i] * x[i + 1];
      largest = std::max(largest, std::abs(image));
    }
    return largest;
  }

  const std::vector<double>& d_;
  const std::vector<double>& e_;
  std::vector<Row> rows_;
  std::vector<double> along_;
  double largest_ = 0;
};

}  // namespace

Eigenpairs symmetric_eigen(const Matrix& matrix) {
  QKSCOPE_ASSERT(matrix.rows == matrix.cols);
  const auto n = static_cast<std::size_t>(matrix.rows);
  Eigenpairs result{std::vector<double>(n), Matrix(matrix.rows, matrix.cols)};
  if (n == 0) return result;
  Tridiagonal tridiagonal(matrix);
  std::vector<double> axes = tridiagonal.make_axes();
  const PaddedRows rows = tridiagonal.view(axes);
  Iteration(tridiagonal.diagonal, tridiagonal.beside, rows).run();

  const auto& values = tridiagonal.diagonal;
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t i, std::size_t j) { return values[i] > values[j]; });
  for (std::size_t i = 0; i < n; ++i) {
    result.values[i] = values[order[i]] * tridiagonal.scale();
    std::copy_n(rows.row(static_cast<std::int64_t>(order[i])), n,
                result.vectors.row(static_cast<std::int64_t>(i)));
  }
  return result;
}

Eigenpairs leading_eigenpairs(const Matrix& matrix, std::int64_t count) {
  QKSCOPE_ASSERT(matrix.rows == matrix.cols && count <= matrix.rows);
  if (2 * count > matrix.rows) return symmetric_eigen(matrix);
  Tridiagonal tridiagonal(matrix);
  Eigenpairs result{tridiagonal.diagonal, Matrix(count, matrix.cols)};
  std::vector<double> beside = tridiagonal.beside;
  Iteration(result.values, beside, {}).run();
  std::sort(result.values.begin(), result.values.end(), std::greater<>());
  InverseIteration inverse(tridiagonal);
  for (std::int64_t i = 0; i < count; ++i)
    if (!inverse.find(result.values[static_cast<std::size_t>(i)], i, result.vectors))
      return symmetric_eigen(matrix);
  tridiagonal.turn_back(result.vectors);
  for (double& value : result.values) value *= tridiagonal.scale();
  return result;
}

}  // namespace qkscope
