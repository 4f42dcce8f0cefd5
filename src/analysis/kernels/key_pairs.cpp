#include "analysis/kernels/key_pairs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "analysis/kernels/vector_loops.h"
#include "numerics/normal.h"
#include "numerics/products.h"

namespace qkscope {
namespace {

// Rows in the order of example, bucket and position.
std::vector<std::int64_t> sorted_order(const Rows& source) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(source.size()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto before = [&](std::int64_t x, std::int64_t y) {
    const auto key = [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      return std::tuple(source.example(at), source.bucket[at], source.position[at], i);
    };
    return key(x) < key(y);
  };
  // Captures are written in this order.
  if (!std::is_sorted(order.begin(), order.end(), before))
    std::sort(order.begin(), order.end(), before);
  return order;
}

// key . mean for every key and column.
Matrix scores_of(const SortedKeys& keys, const QueryColumns& columns) {
  if (columns.mean.rows == columns.size() && columns.drift == 0)
    return multiply_transposed(keys.vectors, columns.mean);
  const auto common = multiply(keys.vectors, columns.mean.data);
  Matrix scores(keys.vectors.rows, columns.size());
  for (std::int64_t i = 0; i < scores.rows; ++i) {
    const double moves = keys.vectors(i, 0) * columns.drift;
    for (std::int64_t c = 0; c < scores.cols; ++c)
      scores(i, c) = common[static_cast<std::size_t>(i)] +
                     moves * columns.position[static_cast<std::size_t>(c)];
  }
  return scores;
}

}  // namespace

SortedKeys sort_keys(const CentredRows& keys, const QueryModel& model) {
  const auto& source = keys.source;
  const auto order = sorted_order(source);
  SortedKeys sorted;
  sorted.vectors = Matrix(keys.size(), keys.dim());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto from = static_cast<std::size_t>(order[i]);
    const bool new_example =
        i == 0 || source.example(from) != source.example(static_cast<std::size_t>(order[i - 1]));
    if (new_example) {
      sorted.begin.push_back(static_cast<std::int64_t>(i));
      sorted.text.push_back(source.example(from));
    }
    sorted.example.push_back(static_cast<std::int32_t>(sorted.begin.size() - 1));
    sorted.bucket.push_back(source.bucket[from]);
    sorted.position.push_back(source.position[from]);
    copy_rotated(keys, order[i], model, sorted.vectors.row(static_cast<std::int64_t>(i)));
  }
  sorted.begin.push_back(keys.size());
  return sorted;
}

std::int64_t QueryColumns::after(std::int32_t key_bucket) const {
  return std::upper_bound(bucket.begin(), bucket.end(), key_bucket) - bucket.begin();
}

PairEvaluator::PairEvaluator(const SortedKeys& keys, const QueryColumns& columns, Sink sink)
    : keys_(keys),
      weights_(columns.variance),
      sink_(std::move(sink)),
      scores_(scores_of(keys, columns)),
      end_column_(columns.size()),
      squares_(static_cast<std::size_t>(keys.vectors.cols * kPanelColumns)),
      sums_(static_cast<std::size_t>(columns.size() * kPanelColumns)),
      variance_(kBlock * static_cast<std::size_t>(columns.size())) {
  waiting_.reserve(kBlock);
}

void PairEvaluator::set_columns(std::int64_t first, std::int64_t end) {
  flush();
  first_column_ = first;
  end_column_ = end;
}

void PairEvaluator::take_variances(std::span<const Pair> pairs, double* variance) {
  const auto dim = keys_.vectors.cols;
  // In difference form nothing cancels, however close two keys are.
  squared_differences(keys_.vectors, pairs, squares_.data());
  const auto columns = end_column_ - first_column_;
  const bool shared = weights_.rows == 1;
  const auto lines = shared ? 1 : columns;
  multiply_panel(weights_.row(shared ? 0 : first_column_), lines, dim, squares_.data(),
                 sums_.data());
  for (std::size_t p = 0; p < pairs.size(); ++p)
    for (std::int64_t line = 0; line < lines; ++line)
      variance[static_cast<std::int64_t>(p) * columns + line] =
          sums_[static_cast<std::size_t>(line) * kPanelColumns + p];
  if (!shared) return;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    double* const to = variance + static_cast<std::int64_t>(p) * columns;
    std::fill(to + 1, to + columns, to[0]);
  }
}

void PairEvaluator::flush() {
  const auto count = waiting_.size();
  const auto columns = end_column_ - first_column_;
  if (count == 0 || columns <= 0) {
    waiting_.clear();
    return;
  }
  const std::span<const Pair> pairs(waiting_);
  for (std::size_t p = 0; p < count; p += kPanelColumns)
    take_variances(pairs.subspan(p, std::min<std::size_t>(kPanelColumns, count - p)),
                   variance_.data() + static_cast<std::int64_t>(p) * columns);
  // Equal keys (variance 0) leave the query no preference: p = 1/2.
  z_scores(scores_, pairs, first_column_, columns, variance_.data());
  const std::span<double> z(variance_.data(), count * static_cast<std::size_t>(columns));
  plasticity_of(z);
  sink_({pairs, first_column_, columns, z});
  waiting_.clear();
}

}  // namespace qkscope
