#include "analysis/key_pairs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include <cblas.h>

#include "analysis/normal.h"

namespace qkscope {

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
      columns_(columns),
      sink_(std::move(sink)),
      scores_(multiply(keys.vectors, columns.mean)),
      end_column_(columns.size()),
      squares_(kBlock * static_cast<std::size_t>(keys.vectors.cols)),
      variance_(kBlock * static_cast<std::size_t>(columns.size())) {
  waiting_.reserve(kBlock);
}

void PairEvaluator::set_columns(std::int64_t first, std::int64_t end) {
  flush();
  first_column_ = first;
  end_column_ = end;
}

void PairEvaluator::flush() {
  const auto count = static_cast<std::int64_t>(waiting_.size());
  const auto columns = end_column_ - first_column_;
  if (count == 0 || columns <= 0) {
    waiting_.clear();
    return;
  }
  const auto dim = keys_.vectors.cols;
  // The squared distance in difference form: nothing cancels, however close two keys are.
  for (std::int64_t p = 0; p < count; ++p) {
    const Pair pair = waiting_[static_cast<std::size_t>(p)];
    const double* const x = keys_.vectors.row(pair.first);
    const double* const y = keys_.vectors.row(pair.second);
    double* const out = squares_.data() + p * dim;
    for (std::int64_t j = 0; j < dim; ++j) out[j] = (x[j] - y[j]) * (x[j] - y[j]);
  }
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, static_cast<int>(count),
              static_cast<int>(columns), static_cast<int>(dim), 1.0, squares_.data(),
              static_cast<int>(dim), columns_.variance.data.data() + first_column_,
              static_cast<int>(columns_.variance.cols), 0.0, variance_.data(),
              static_cast<int>(columns));
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
