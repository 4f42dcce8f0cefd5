#include "analysis/key_pairs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <tuple>

#include "analysis/normal.h"

namespace qkscope {
namespace {

using TwoDoubles = double __attribute__((vector_size(16)));

inline TwoDoubles load(const double* from) {
  TwoDoubles value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Two pairs of keys at a time, so that each weight is loaded once for both.
struct TwoPairs {
  const double* x1;
  const double* y1;
  const double* x2;
  const double* y2;
  std::int64_t dim;

  // sum of weight (x - y)^2 for `kColumns` lines of weights (columns, dim). In difference form
  // nothing cancels, however close two keys are.
  template <int kColumns>
  void distances(const double* weights, double* out1, double* out2) const {
    TwoDoubles sum1[kColumns] = {};
    TwoDoubles sum2[kColumns] = {};
    std::int64_t j = 0;
    for (; j + 2 <= dim; j += 2) {
      const TwoDoubles delta1 = load(x1 + j) - load(y1 + j);
      const TwoDoubles delta2 = load(x2 + j) - load(y2 + j);
      const TwoDoubles square1 = delta1 * delta1;
      const TwoDoubles square2 = delta2 * delta2;
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        const TwoDoubles weight = load(weights + c * dim + j);
        sum1[c] += square1 * weight;
        sum2[c] += square2 * weight;
      }
    }
    for (int c = 0; c < kColumns; ++c) {
      out1[c] = sum1[c][0] + sum1[c][1];
      out2[c] = sum2[c][0] + sum2[c][1];
    }
    for (; j < dim; ++j)
      for (int c = 0; c < kColumns; ++c) {
        out1[c] += (x1[j] - y1[j]) * (x1[j] - y1[j]) * weights[c * dim + j];
        out2[c] += (x2[j] - y2[j]) * (x2[j] - y2[j]) * weights[c * dim + j];
      }
  }
};

Matrix transposed(const Matrix& matrix) {
  Matrix result(matrix.cols, matrix.rows);
  for (std::int64_t i = 0; i < matrix.rows; ++i)
    for (std::int64_t j = 0; j < matrix.cols; ++j) result(j, i) = matrix(i, j);
  return result;
}

}  // namespace

SortedKeys sort_keys(const CentredRows& keys, const Matrix& rotated) {
  const auto& source = keys.source;
  std::vector<std::int64_t> order(static_cast<std::size_t>(keys.size()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto key = [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    return std::tuple(source.example_id[at], source.bucket[at], source.position[at], i);
  };
  std::sort(order.begin(), order.end(), [&](auto x, auto y) { return key(x) < key(y); });
  SortedKeys sorted;
  sorted.vectors = Matrix(rotated.rows, rotated.cols);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto from = static_cast<std::size_t>(order[i]);
    const bool new_example =
        i == 0 ||
        source.example_id[from] != source.example_id[static_cast<std::size_t>(order[i - 1])];
    if (new_example) sorted.begin.push_back(static_cast<std::int64_t>(i));
    sorted.example.push_back(static_cast<std::int32_t>(sorted.begin.size() - 1));
    sorted.bucket.push_back(source.bucket[from]);
    sorted.position.push_back(source.position[from]);
    std::copy_n(rotated.row(order[i]), rotated.cols,
                sorted.vectors.row(static_cast<std::int64_t>(i)));
  }
  sorted.begin.push_back(rotated.rows);
  return sorted;
}

std::int64_t QueryColumns::after(std::int32_t key_bucket) const {
  return std::upper_bound(bucket.begin(), bucket.end(), key_bucket) - bucket.begin();
}

PairEvaluator::PairEvaluator(const SortedKeys& keys, const QueryColumns& columns, Sink sink)
    : keys_(keys),
      sink_(std::move(sink)),
      scores_(multiply(keys.vectors, columns.mean)),
      weights_(transposed(columns.variance)),
      end_column_(columns.size()),
      variance_(kBlock * static_cast<std::size_t>(columns.size())) {
  waiting_.reserve(kBlock);
}

void PairEvaluator::set_columns(std::int64_t first, std::int64_t end) {
  flush();
  first_column_ = first;
  end_column_ = end;
}

void PairEvaluator::variances_of_two(std::int64_t first, std::int64_t second) {
  const auto dim = keys_.vectors.cols;
  const auto columns = end_column_ - first_column_;
  const Pair& one = waiting_[static_cast<std::size_t>(first)];
  const Pair& two = waiting_[static_cast<std::size_t>(second)];
  const TwoPairs pairs{keys_.vectors.row(one.first), keys_.vectors.row(one.second),
                       keys_.vectors.row(two.first), keys_.vectors.row(two.second), dim};
  double* const to_first = variance_.data() + first * columns;
  double* const to_second = variance_.data() + second * columns;
  for (std::int64_t c = 0; c < columns;) {
    const double* const weights = weights_.row(first_column_ + c);
    switch (columns - c) {
      case 1:
        pairs.distances<1>(weights, to_first + c, to_second + c);
        c += 1;
        break;
      case 2:
        pairs.distances<2>(weights, to_first + c, to_second + c);
        c += 2;
        break;
      case 3:
        pairs.distances<3>(weights, to_first + c, to_second + c);
        c += 3;
        break;
      default:
        pairs.distances<4>(weights, to_first + c, to_second + c);
        c += 4;
    }
  }
}

void PairEvaluator::flush() {
  const auto count = static_cast<std::int64_t>(waiting_.size());
  const auto columns = end_column_ - first_column_;
  if (count == 0 || columns <= 0) {
    waiting_.clear();
    return;
  }
  for (std::int64_t p = 0; p < count; p += 2) variances_of_two(p, std::min(p + 1, count - 1));
  for (std::int64_t p = 0; p < count; ++p) {
    const Pair pair = waiting_[static_cast<std::size_t>(p)];
    const double* const x = scores_.row(pair.first) + first_column_;
    const double* const y = scores_.row(pair.second) + first_column_;
    double* const v = variance_.data() + p * columns;
    // Equal keys (v = 0) leave the query no preference: p = 1/2.
    for (std::int64_t c = 0; c < columns; ++c)
      v[c] = v[c] > 0 ? (x[c] - y[c]) / std::sqrt(v[c]) : 0.0;
  }
  const std::span<double> z(variance_.data(), static_cast<std::size_t>(count * columns));
  plasticity_of(z);
  sink_({waiting_, first_column_, columns, z});
  waiting_.clear();
}

}  // namespace qkscope
