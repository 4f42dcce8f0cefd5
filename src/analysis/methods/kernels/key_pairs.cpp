#include "analysis/methods/kernels/key_pairs.h"

#include <bit>
#include <cmath>
#include <numeric>
#include <tuple>

#include "base/core/cpu_target.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/numerics/products.h"

namespace qkscope {
namespace {

// Returns row numbers sorted by text, bin and position.
std::vector<std::int64_t> argsort_keys(const RowsView& source, std::span<const std::int32_t> bin) {
  std::vector<std::int64_t> order(as_index(source.size()));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto place = [&](std::int64_t i) {
    const auto at = as_index(i);
    return std::tuple(source.example(at), bin[at], source.position[at], i);
  };
  // Skip the sort if the rows are sorted already, as those of captures usually are.
  if (!std::ranges::is_sorted(order, {}, place)) std::ranges::sort(order, {}, place);
  return order;
}

// Converts rows to float32 columns, with the padding that multiply_few_columns() needs.
FloatMatrix transpose_with_padding(const Matrix& rows) {
  FloatMatrix columns(rows.cols, rows.rows + kFewColumnsPadding);
  for (std::int64_t i = 0; i < rows.rows; ++i)
    for (std::int64_t j = 0; j < rows.cols; ++j) columns(j, i) = static_cast<float>(rows(i, j));
  return columns;
}

// Converts rows to float32, with the column padding that multiply_few_columns() needs.
FloatMatrix copy_with_padding(const Matrix& rows) {
  FloatMatrix copy(rows.rows, rows.cols + kFewColumnsPadding);
  for (std::int64_t i = 0; i < rows.rows; ++i) std::copy_n(rows.row(i), rows.cols, copy.row(i));
  return copy;
}

void check_key_magnitude(const char* what, double largest) {
  constexpr double kMost = 1e15;  // its fourth power would leave the range of float32
  if (!(largest <= kMost))
    reject(
        "a {} has a component of {:.3g}; plasticity compares keys in float32, with components "
        "up to {:.0e}",
        what, largest, kMost);
}

}  // namespace

QKSCOPE_VECTORIZE_FOR_CPU FloatMatrix rotate_and_scale_keys(const CentredRows& keys,
                                                            const LinearQueryModel& model,
                                                            std::span<const std::int64_t> order) {
  FloatMatrix rows = rotate_centred_rows(keys, model, order);
  // Magnitudes of floats compare like their bit patterns, and GCC vectorises only integer maxima.
  std::uint32_t bits = 0;
  for (const float x : rows.data) bits = std::max(bits, std::bit_cast<std::uint32_t>(std::fabs(x)));
  const auto largest = std::bit_cast<float>(bits);
  check_key_magnitude("key", largest);
  const float scale = largest > 0 ? std::ldexp(1.0F, -std::ilogb(largest) - 1) : 1;
  for (float& x : rows.data) x *= scale;
  return rows;
}

SortedKeys sort_keys_by_text_and_bin(const RowsView& keys, std::span<const std::int32_t> bin) {
  SortedKeys sorted;
  sorted.row = argsort_keys(keys, bin);
  const auto count = sorted.row.size();
  sorted.example.reserve(count);
  sorted.bin.reserve(count);
  sorted.position.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto from = as_index(sorted.row[i]);
    if (i == 0 || keys.example(from) != sorted.text.back()) {
      sorted.begin.push_back(static_cast<std::int64_t>(i));
      sorted.text.push_back(keys.example(from));
    }
    sorted.example.push_back(static_cast<std::int32_t>(sorted.begin.size() - 1));
    sorted.bin.push_back(bin[from]);
    sorted.position.push_back(keys.position[from]);
  }
  sorted.begin.push_back(keys.size());
  return sorted;
}

void QueryEvaluationPoints::add_point(std::int32_t bin_number, double mean_position,
                                      std::int32_t column_number, double column_fraction) {
  bin.push_back(bin_number);
  position.push_back(mean_position);
  column.push_back(column_number);
  fraction.push_back(column_fraction);
}

QKSCOPE_VECTORIZE_FOR_CPU void compute_z_scores(const KeyPairScoreInput& model,
                                                std::span<const KeyPair> pairs, std::int64_t column,
                                                std::int64_t columns, float* z) {
  const auto dim = model.keys.dim;
  thread_local CacheAlignedVector<float> squares;
  squares.resize(as_index(kTilePairs * dim));
  float* to = squares.data();
  for (const KeyPair& pair : pairs) {
    const float* const x = model.keys.row(pair.first);
    const float* const y = model.keys.row(pair.second);
    for (std::int64_t j = 0; j < dim; ++j) to[j] = (x[j] - y[j]) * (x[j] - y[j]);
    to += dim;
  }
  multiply_few_columns(squares.data(), std::ssize(pairs), dim, model.variances.row(0) + column,
                       model.variances.cols, columns, z);
  for (const KeyPair& pair : pairs) {
    const float* const x = model.scores.row(pair.first - model.keys.first) + column;
    const float* const y = model.scores.row(pair.second - model.keys.first) + column;
    for (std::int64_t c = 0; c < columns; ++c) z[c] = clamped_z_score(x[c] - y[c], z[c]);
    z += columns;
  }
}

void compute_z_scores_reference(const KeyPairScoreInput& model, std::span<const KeyPair> pairs,
                                std::int64_t column, std::int64_t columns, float* z) {
  for (const KeyPair& pair : pairs) {
    const float* const x = model.keys.row(pair.first);
    const float* const y = model.keys.row(pair.second);
    for (auto c = column; c < column + columns; ++c) {
      double variance = 0;
      for (std::int64_t j = 0; j < model.keys.dim; ++j)
        variance += model.variances(j, c) * std::pow(double{x[j]} - y[j], 2);
      const double mean = double{model.scores(pair.first - model.keys.first, c)} -
                          model.scores(pair.second - model.keys.first, c);
      *z++ = clamped_z_score(static_cast<float>(mean), static_cast<float>(variance));
    }
  }
}

ZScoreEvaluator::ZScoreEvaluator(const QueryGaussians& columns, ZScoreConsumer consumer)
    : queries_(columns),
      consumer_(std::move(consumer)),
      means_(transpose_with_padding(columns.mean)),
      variances_(transpose_with_padding(columns.variance)),
      scores_(0, columns.size()),
      whitened_(columns.cholesky.size()),
      end_column_(columns.size()),
      by_pair_(as_index(kTilePairs * (columns.size() + 3) + kFewColumnsPadding)),
      by_lane_(as_index(kTilePairs * columns.size())) {
  waiting_.reserve(kTilePairs);
  double largest = 0;
  for (const double x : columns.mean.data) largest = std::max(largest, std::fabs(x));
  for (const double x : columns.variance.data) largest = std::max(largest, std::sqrt(x));
  check_key_magnitude("query", largest);
  for (const auto& factor : columns.cholesky) factors_.push_back(copy_with_padding(factor));
}

void ZScoreEvaluator::set_keys(const KeyTile& keys) {
  flush();
  keys_ = keys;
  if (queries_.size() == 0) return;
  if (scores_.rows < keys.count + kFewColumnsPadding)
    scores_ = FloatMatrix(keys.count + kFewColumnsPadding, scores_.cols);
  multiply_few_columns(keys.vectors, keys.count, keys.dim, means_.data.data(), means_.cols,
                       scores_.cols, scores_.data.data());
  for (std::size_t c = 0; c < whitened_.size(); ++c) {
    const FloatMatrix& factor = factors_[c];
    whitened_[c] = FloatMatrix(keys.count, keys.dim);
    whitened_[c].data.resize(whitened_[c].data.size() + kFewColumnsPadding);
    multiply_few_columns(keys.vectors, keys.count, keys.dim, factor.data.data(), factor.cols,
                         keys.dim, whitened_[c].data.data());
  }
}

// Variance of the score difference of two keys, with delta = key i - key j and the Cholesky factor
// L of the query covariance: delta^T L L^T delta = |L^T delta|^2.
void ZScoreEvaluator::compute_z_scores_with_full_covariance() {
  float* z = by_pair_.data();
  for (const KeyPair& pair : waiting_) {
    const auto first = pair.first - keys_.first;
    const auto second = pair.second - keys_.first;
    for (auto column = tile_first_; column < tile_end_; ++column) {
      const FloatMatrix& keys = whitened_[as_index(column)];
      const float* const x = keys.row(first);
      const float* const y = keys.row(second);
      float variance = 0;
      for (std::int64_t j = 0; j < keys.cols; ++j) variance += (x[j] - y[j]) * (x[j] - y[j]);
      *z++ = clamped_z_score(scores_(first, column) - scores_(second, column), variance);
    }
  }
}

void ZScoreEvaluator::flush() {
  constexpr float kCertain = 1e4;  // z of plasticity 0
  if (waiting_.empty()) return;
  const auto columns = tile_end_ - tile_first_;
  auto stride = columns;
  if (whitened_.empty()) {
    stride = (columns + 3) / 4 * 4;  // whole vectors
    compute_z_scores({keys_, scores_, variances_}, waiting_, tile_first_, stride, by_pair_.data());
  } else {
    compute_z_scores_with_full_covariance();
  }
  const auto pairs = std::ssize(waiting_);
  const auto lanes = (pairs + kLaneStep - 1) / kLaneStep * kLaneStep;
  for (std::int64_t c = 0; c < columns; ++c) {
    float* const to = by_lane_.data() + c * lanes;
    for (std::int64_t p = 0; p < pairs; ++p) to[p] = by_pair_.data()[p * stride + c];
    std::fill(to + pairs, to + lanes, kCertain);
  }
  consumer_({waiting_, tile_first_, columns, lanes, by_lane_.data()});
  waiting_.clear();
}

}  // namespace qkscope
