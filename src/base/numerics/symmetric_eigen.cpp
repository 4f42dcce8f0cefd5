// Householder tridiagonalisation and implicit QL iteration (tred2 and tql2 of Bowdler, Martin,
// Reinsch and Wilkinson, 1968). In the loops over rows, every element is a chain of fused
// multiply-adds in a fixed order.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/core/cpu_target.h"
#include "base/core/error.h"
#include "base/numerics/matrix.h"
#include "base/numerics/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/numerics/symmetric_eigen.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/numerics/kernel_helpers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkscope::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Eight partial sums per row, to hide the latency of additions.
constexpr int kSums = 8;
using Doubles = hn::CappedTag<double, kSums>;
using Vector = hn::Vec<Doubles>;
constexpr int kLanes = hn::MaxLanes(Doubles());
constexpr int kVectors = kSums / kLanes;

HWY_INLINE Vector load(const double* from) {
  return hn::LoadU(Doubles(), from);
}
HWY_INLINE void store(Vector value, double* to) {
  hn::StoreU(value, Doubles(), to);
}

std::int64_t round_down_to_block(std::int64_t column) {
  return column / PaddedRows::kBlock * PaddedRows::kBlock;
}

// Matrix-vector product: out[i] = row i . v for rows [first, last) and columns >= `column`. Whole
// blocks of columns are read, so v must be zero in the padding and in the elements before `column`
// in the same block.
void multiply_rows_by_vector(PaddedRows matrix, std::int64_t first, std::int64_t last,
                             std::int64_t column, const double* v, double* out) {
  for (std::int64_t i = first; i < last; ++i) {
    Vector sum[kVectors];
    for (Vector& part : sum) part = hn::Zero(Doubles());
    for (std::int64_t at = round_down_to_block(column); at < matrix.columns; at += kSums)
#pragma GCC unroll 4
      for (int k = 0; k < kVectors; ++k)
        sum[k] =
            hn::MulAdd(load(matrix.row(i) + at + k * kLanes), load(v + at + k * kLanes), sum[k]);
    out[i] = sum_all_lanes(Doubles(), sum);
  }
}

// Rank-2 update: row i -= v[i] w + w[i] v for rows [first, last) and all columns from the start of
// the block of columns that contains `column`.
void subtract_outer_products(PaddedRows matrix, std::int64_t first, std::int64_t last,
                             std::int64_t column, const double* v, const double* w) {
  const std::int64_t begin = round_down_to_block(column);
  for (std::int64_t i = first; i < last; ++i) {
    const Vector v_i = hn::Set(Doubles(), v[i]);
    const Vector w_i = hn::Set(Doubles(), w[i]);
    double* row = matrix.row(i);
    for (std::int64_t c = begin; c < matrix.columns; c += kLanes)
      store(hn::NegMulAdd(w_i, load(v + c), hn::NegMulAdd(v_i, load(w + c), load(row + c))),
            row + c);
  }
}

// Applies the reflection 1 - factor v v^T from the left to rows [first, last), for all columns from
// the start of the block of columns that contains `column`. `sum` (columns) is scratch space.
void reflect_columns(PaddedRows matrix, std::int64_t first, std::int64_t last, std::int64_t column,
                     const double* v, double factor, double* sum) {
  const std::int64_t begin = round_down_to_block(column);
  std::fill(sum + begin, sum + matrix.columns, 0.0);
  for (std::int64_t i = first; i < last; ++i)
    for (std::int64_t c = begin; c < matrix.columns; c += kLanes)
      store(hn::MulAdd(hn::Set(Doubles(), v[i]), load(matrix.row(i) + c), load(sum + c)), sum + c);
  for (std::int64_t c = begin; c < matrix.columns; c += kLanes)
    store(hn::Mul(hn::Set(Doubles(), factor), load(sum + c)), sum + c);
  for (std::int64_t i = first; i < last; ++i) {
    const Vector v_i = hn::Set(Doubles(), v[i]);
    double* row = matrix.row(i);
    for (std::int64_t c = begin; c < matrix.columns; c += kLanes)
      store(hn::NegMulAdd(v_i, load(sum + c), load(row + c)), row + c);
  }
}

// Givens rotations of rows (top, top - 1), (top - 1, top - 2), ...: rotation k sets x = c x + s y
// and y = c y - s x for the row x with the higher index and the row y with the lower one.
void apply_givens_rotations(PaddedRows matrix, std::int64_t top, std::span<const double> cosine,
                            std::span<const double> sine) {
  for (std::int64_t k = 0; k < std::ssize(cosine); ++k) {
    const Vector c = hn::Set(Doubles(), cosine[as_index(k)]);
    const Vector s = hn::Set(Doubles(), sine[as_index(k)]);
    double* const x = matrix.row(top - k);
    double* const y = matrix.row(top - k - 1);
    for (std::int64_t at = 0; at < matrix.columns; at += kLanes) {
      const Vector higher = load(x + at);
      const Vector lower = load(y + at);
      store(hn::MulAdd(s, lower, hn::Mul(c, higher)), x + at);
      store(hn::MulSub(c, lower, hn::Mul(s, higher)), y + at);
    }
  }
}

}  // namespace
}  // namespace qkscope::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkscope {
namespace {

HWY_EXPORT(multiply_rows_by_vector);
HWY_EXPORT(subtract_outer_products);
HWY_EXPORT(reflect_columns);
HWY_EXPORT(apply_givens_rotations);

constexpr int kMaxSweeps = 60;  // per eigenvalue; two or three are typical
// After this many sweeps, off-diagonal elements are compared with the norm of the full matrix: in a
// rank-deficient matrix, a block of rounding errors never becomes small relative to its own norm.
constexpr int kRelativeSweeps = 10;

// Elements below this count as zero. The matrix is scaled to a largest element of 1, and the square
// of an element not far below this underflows.
constexpr double kNegligible = 1e-150;

// Householder reduction to tridiagonal form, T = Q^T A Q.
class TridiagonalReduction {
 public:
  explicit TridiagonalReduction(const Matrix& matrix);

  // Returns Q^T, shape (size, stride).
  std::vector<double> make_q_transposed() {
    std::vector<double> q(work_.size());
    const PaddedRows columns = as_rows(q);
    for (std::int64_t i = 0; i < size_; ++i) columns.row(i)[i] = 1;
    apply_reflections(columns, true);
    for (std::int64_t i = 0; i < size_; ++i)
      for (std::int64_t j = 0; j < i; ++j) std::swap(columns.row(i)[j], columns.row(j)[i]);
    return q;
  }

  // Transforms eigenvectors of the tridiagonal matrix T, stored as rows, to eigenvectors of A.
  void back_transform_vectors(Matrix& vectors) {
    const auto padded =
        (vectors.rows + PaddedRows::kBlock - 1) / PaddedRows::kBlock * PaddedRows::kBlock;
    std::vector<double> columns(as_index(size_ * padded));
    for (std::int64_t j = 0; j < vectors.rows; ++j)
      for (std::int64_t i = 0; i < size_; ++i) columns[as_index(i * padded + j)] = vectors(j, i);
    apply_reflections({columns.data(), padded, padded}, false);
    for (std::int64_t j = 0; j < vectors.rows; ++j)
      for (std::int64_t i = 0; i < size_; ++i) vectors(j, i) = columns[as_index(i * padded + j)];
  }

  PaddedRows as_rows(std::vector<double>& axes) const { return {axes.data(), columns_, stride_}; }
  double scale() const { return scale_; }

  std::vector<double> diagonal;      // (size)
  std::vector<double> off_diagonal;  // (size): element i couples rows i and i + 1

 private:
  PaddedRows work_rows() { return as_rows(work_); }
  // Applies the Householder reflection that zeroes row k beyond its first off-diagonal element.
  void reduce_row(std::int64_t k) {
    const auto at = as_index(k);
    const PaddedRows rows = work_rows();
    double* row = rows.row(k);
    diagonal[at] = row[k];
    if (k + 1 == size_) return;
    off_diagonal[at] = row[k + 1];
    double squares = 0;
    for (std::int64_t j = k + 2; j < size_; ++j) squares += row[j] * row[j];
    if (squares == 0) return;
    // The reflection is 1 - factor v v^T.
    const double first = row[k + 1];
    const double length = std::sqrt(first * first + squares);
    off_diagonal[at] = first > 0 ? -length : length;
    row[k + 1] = first - off_diagonal[at];
    const double factor = 2 / (squares + row[k + 1] * row[k + 1]);
    factors_[at] = factor;
    v_[at] = 0;
    w_[at] = 0;
    std::copy(row + k + 1, row + size_, v_.begin() + k + 1);
    QKSCOPE_DISPATCH(multiply_rows_by_vector)(rows, k + 1, size_, k + 1, v_.data(), w_.data());
    double along = 0;
    for (auto j = at + 1; j < v_.size(); ++j) along += v_[j] * w_[j];
    const double half = factor * factor * along / 2;
    for (auto j = at + 1; j < v_.size(); ++j) w_[j] = factor * w_[j] - half * v_[j];
    QKSCOPE_DISPATCH(subtract_outer_products)(rows, k + 1, size_, k + 1, v_.data(), w_.data());
  }

  // Replaces `columns` with the product Q * columns. If `columns` is the identity, reflection k
  // leaves columns 0 to k unchanged, so they are skipped.
  void apply_reflections(PaddedRows columns, bool identity) {
    for (std::int64_t k = size_ - 2; k >= 0; --k) {
      const double factor = factors_[as_index(k)];
      if (factor == 0) continue;
      std::copy(work_rows().row(k) + k + 1, work_rows().row(k) + size_, v_.begin() + k + 1);
      QKSCOPE_DISPATCH(reflect_columns)
      (columns, k + 1, size_, identity ? k + 1 : 0, v_.data(), factor, w_.data());
    }
  }

  std::int64_t size_;
  std::int64_t columns_;  // including padding
  std::int64_t stride_;
  double scale_ = 0;             // largest |element| of A; T is computed from A / scale_
  std::vector<double> work_;     // (size, stride): unreduced part of A; row k stores reflection k
  std::vector<double> factors_;  // (size)
  std::vector<double> v_;        // (columns): scratch
  std::vector<double> w_;
};

TridiagonalReduction::TridiagonalReduction(const Matrix& matrix)
    : diagonal(as_index(matrix.rows)),
      off_diagonal(diagonal.size()),
      size_(matrix.rows),
      columns_((size_ + PaddedRows::kBlock - 1) / PaddedRows::kBlock * PaddedRows::kBlock),
      // The number of blocks per row is odd: with a power of two, all rows share a few cache sets.
      stride_(columns_ / PaddedRows::kBlock % 2 == 0 ? columns_ + PaddedRows::kBlock : columns_),
      work_(as_index(size_ * stride_)),
      factors_(diagonal.size()),
      v_(as_index(columns_)),
      w_(as_index(columns_)) {
  for (const double x : matrix.data) scale_ = std::max(scale_, std::abs(x));
  if (scale_ == 0) scale_ = 1;
  for (std::int64_t i = 0; i < size_; ++i)
    for (std::int64_t j = 0; j < size_; ++j) work_rows().row(i)[j] = matrix(i, j) / scale_;
  for (std::int64_t k = 0; k < size_; ++k) reduce_row(k);
}

// Implicit QL iteration: diagonalises a tridiagonal matrix and rotates the rows of `axes`, if any.
class QlIteration {
 public:
  QlIteration(std::vector<double>& diagonal, std::vector<double>& off_diagonal, PaddedRows axes)
      : d_(diagonal), e_(off_diagonal), axes_(axes) {
    for (std::size_t i = 0; i < d_.size(); ++i)
      largest_ = std::max(largest_, std::abs(d_[i]) + std::abs(e_[i]));
  }

  void find_eigenvalues() {
    const auto size = d_.size();
    for (std::size_t i = 0; i < size; ++i)
      for (int sweeps = 0;; ++sweeps) {
        const std::size_t end =
            last_row_of_block(i, sweeps < kRelativeSweeps ? kNegligible : kEpsilon * largest_);
        if (end == i) break;
        if (sweeps == kMaxSweeps)
          throw_failure("eigenvalues of a {0} x {0} covariance did not converge", size);
        apply_ql_step(i, end);
      }
  }

 private:
  static constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

  // Returns the last row of the unreduced diagonal block that begins at row i.
  std::size_t last_row_of_block(std::size_t i, double negligible) const {
    for (; i + 1 < d_.size(); ++i)
      if (std::abs(e_[i]) <= kEpsilon * (std::abs(d_[i]) + std::abs(d_[i + 1])) + negligible) break;
    return i;
  }

  void apply_ql_step(std::size_t begin, std::size_t end) {
    cosine_.clear();
    sine_.clear();
    const double half = (d_[begin + 1] - d_[begin]) / (2 * e_[begin]);
    const double root = std::sqrt(half * half + 1);
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
      if (r < kNegligible) {  // the block splits here
        d_[i + 1] -= p;
        e_[i + 1] = 0;
        break;
      }
      const double inverse = r * (1 / square);  // sqrt and division are independent
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
    if (axes_.data != nullptr) QKSCOPE_DISPATCH(apply_givens_rotations)
    (axes_, static_cast<std::int64_t>(end), cosine_, sine_);
  }

  std::vector<double>& d_;
  std::vector<double>& e_;
  PaddedRows axes_;
  double largest_ = 0;
  std::vector<double> cosine_;
  std::vector<double> sine_;
};

// Inverse iteration: eigenvectors of a tridiagonal matrix with known eigenvalues.
class InverseIteration {
 public:
  explicit InverseIteration(const TridiagonalReduction& matrix)
      : d_(matrix.diagonal), e_(matrix.off_diagonal), rows_(matrix.diagonal.size()) {
    for (std::size_t i = 0; i < d_.size(); ++i)
      largest_ = std::max(largest_, std::abs(d_[i]) + std::abs(e_[i]));
  }

  // Writes the eigenvector of the eigenvalue `value` to row i of `vectors`, orthogonal to rows [0,
  // i). Returns false if the inverse iteration does not converge.
  bool find_eigenvector(double value, std::int64_t i, Matrix& vectors) {
    factorise_matrix(value);
    const std::span<double> x(vectors.row(i), d_.size());
    Random random(static_cast<std::uint64_t>(i));  // not orthogonal to the eigenvector
    for (double& number : x) number = random.uniform() - 0.5;
    for (int round = 0; round < kMostRounds; ++round) {
      solve_system(x);
      along_.resize(as_index(i));
      compute_row_dots(vectors.row(0), i, x, along_.data());
      for (std::int64_t j = 0; j < i; ++j)
        add_scaled(-along_[as_index(j)], {vectors.row(j), x.size()}, x);
      const double length = norm(x);
      if (!(length > 0) || !std::isfinite(length)) return false;
      for (double& number : x) number /= length;
      if (round > 0 && residual(value, x) <= kSolved * largest_) return true;
    }
    return false;
  }

 private:
  static constexpr int kMostRounds = 6;  // two are typical
  static constexpr double kSolved = 1e-14;

  // One row of the LU decomposition with partial pivoting: inverse pivot, the two elements to its
  // right, and the multiplier that eliminates the next row. `swapped`: this row and the next one
  // were exchanged.
  struct LuRow {
    double inverse;
    double off_diagonal;
    double beyond;
    double factor;
    bool swapped;
  };

  void factorise_matrix(double value) {
    const double least = std::numeric_limits<double>::epsilon() * largest_;
    const auto n = d_.size();
    double diagonal = d_[0] - value;
    double off_diagonal = n > 1 ? e_[0] : 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double lower = i + 1 < n ? e_[i] : 0;  // first element of the next row
      const double next = i + 1 < n ? d_[i + 1] - value : 0;
      const double after = i + 2 < n ? e_[i + 1] : 0;
      LuRow& row = rows_[i];
      row.swapped = std::abs(lower) > std::abs(diagonal);
      if (row.swapped) {
        row = {1 / lower, next, after, diagonal / lower, true};
        diagonal = off_diagonal - row.factor * next;
        off_diagonal = -row.factor * after;
      } else {
        if (std::abs(diagonal) < least) diagonal = least;
        row = {1 / diagonal, off_diagonal, 0, lower / diagonal, false};
        diagonal = next - row.factor * off_diagonal;
        off_diagonal = after;
      }
    }
  }

  // x = (T - value)^-1 x
  void solve_system(std::span<double> x) const {
    const auto n = x.size();
    for (std::size_t i = 0; i + 1 < n; ++i) {
      if (rows_[i].swapped) std::swap(x[i], x[i + 1]);
      x[i + 1] -= rows_[i].factor * x[i];
    }
    for (std::size_t i = n; i-- > 0;) {
      if (i + 1 < n) x[i] -= rows_[i].off_diagonal * x[i + 1];
      if (i + 2 < n) x[i] -= rows_[i].beyond * x[i + 2];
      x[i] *= rows_[i].inverse;
    }
  }

  // Returns the largest |element| of T x - value x.
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
  std::vector<LuRow> rows_;
  std::vector<double> along_;
  double largest_ = 0;
};

}  // namespace

Eigenpairs symmetric_eigenpairs(const Matrix& matrix) {
  QKSCOPE_ASSERT(matrix.rows == matrix.cols);
  const auto n = as_index(matrix.rows);
  Eigenpairs result{std::vector<double>(n), Matrix(matrix.rows, matrix.cols)};
  if (n == 0) return result;
  TridiagonalReduction tridiagonal(matrix);
  std::vector<double> axes = tridiagonal.make_q_transposed();
  const PaddedRows rows = tridiagonal.as_rows(axes);
  QlIteration(tridiagonal.diagonal, tridiagonal.off_diagonal, rows).find_eigenvalues();

  const auto& values = tridiagonal.diagonal;
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
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
  if (2 * count > matrix.rows) return symmetric_eigenpairs(matrix);
  TridiagonalReduction tridiagonal(matrix);
  Eigenpairs result{tridiagonal.diagonal, Matrix(count, matrix.cols)};
  std::vector<double> off_diagonal = tridiagonal.off_diagonal;
  QlIteration(result.values, off_diagonal, {}).find_eigenvalues();
  std::ranges::sort(result.values, std::greater<>());
  InverseIteration inverse(tridiagonal);
  for (std::int64_t i = 0; i < count; ++i)
    if (!inverse.find_eigenvector(result.values[as_index(i)], i, result.vectors))
      return symmetric_eigenpairs(matrix);
  if (count > 0) tridiagonal.back_transform_vectors(result.vectors);
  for (double& value : result.values) value *= tridiagonal.scale();
  return result;
}

}  // namespace qkscope
#endif
