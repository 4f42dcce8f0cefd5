#include "analysis/attribution/decomposition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/numerics/products.h"
#include "base/numerics/vectors.h"

namespace qkscope {

std::int64_t SplitVectors::row_at_position(std::int64_t position) const {
  const auto found = std::ranges::lower_bound(positions, position);
  QKSCOPE_ASSERT(found != positions.end() && *found == position);
  return found - positions.begin();
}

Matrix SplitVectors::split(std::int64_t row) const {
  Matrix parts(components(), values.cols);
  std::copy_n(values.row(row * components()), parts.data.size(), parts.data.begin());
  return parts;
}

std::vector<double> row_sums(const Matrix& matrix) {
  return multiply(matrix, std::vector<double>(as_index(matrix.cols), 1.0));
}

std::vector<double> column_sums(const Matrix& matrix) {
  std::vector<double> sums(as_index(matrix.cols), 0.0);
  for (std::int64_t i = 0; i < matrix.rows; ++i) add_scaled(1, {matrix.row(i), sums.size()}, sums);
  return sums;
}

HeadDecomposition::HeadDecomposition(const Model& model, AttentionHead head, std::int64_t length)
    : head_(head),
      scale_(model.config().score_scale(head.layer)),
      softcap_(model.config().attention_softcap),
      window_(model.config().layers[as_index(head.layer)].window),
      query_scaling_(model.config().query_scaling),
      interleaved_(model.config().rope_interleaved) {
  const auto& sinks = model.weights().layers[as_index(head.layer)].sinks;
  if (!sinks.empty()) sink_ = static_cast<double>(sinks[as_index(head.head)]);
  const auto* rope = model.config().rope(head.layer);
  if (rope != nullptr) frequencies_ = rope_frequencies(*rope, length);
  if (rope != nullptr && rope->reversed)
    for (float& inverse : frequencies_.inverse) inverse = -inverse;
}

double HeadDecomposition::score(std::int64_t i, std::int64_t j) const {
  const auto d = q.rotated.dim(1);
  const float* query = q.rotated.data<float>() + i * d;
  const std::vector<double> key(k.rotated.data<float>() + j * d,
                                k.rotated.data<float>() + (j + 1) * d);
  return scale_ * dot(std::span(query, key.size()), key);
}

std::vector<double> HeadDecomposition::attention(std::vector<double> scores) const {
  const auto query = std::ssize(scores) - 1;
  const auto visible =
      scores.begin() + (window_ > 0 ? std::max<std::int64_t>(0, query - window_ + 1) : 0);
  std::fill(scores.begin(), visible, -std::numeric_limits<double>::infinity());
  if (softcap_ > 0)
    for (auto& score : std::span(visible, scores.end()))
      score = softcap_ * std::tanh(score / softcap_);
  const double highest = std::max(*std::ranges::max_element(scores), sink_.value_or(scores.back()));
  double sum = sink_ ? std::exp(*sink_ - highest) : 0.0;
  for (double& score : scores) sum += score = std::exp(score - highest);
  for (double& score : scores) score /= sum;
  return scores;
}

Matrix HeadDecomposition::contributions(std::int64_t i, std::int64_t j) const {
  return multiply_transposed(scaled_queries(i), rotated_keys(j));
}

Matrix HeadDecomposition::scaled_queries(std::int64_t i) const {
  Matrix parts = q.split(i);
  const auto position = q.positions[as_index(i)];
  rotate(parts, position);
  for (double& value : parts.data) value *= scale_at(position);
  return parts;
}

Matrix HeadDecomposition::rotated_keys(std::int64_t j) const {
  Matrix parts = k.split(j);
  rotate(parts, k.positions[as_index(j)]);
  return parts;
}

double HeadDecomposition::scale_at(std::int64_t position) const {
  if (!query_scaling_) return scale_;
  const auto beta = query_scaling_->beta;
  const auto original = query_scaling_->original_max;
  return scale_ * (1 + beta * std::log(1.0 + static_cast<double>(position / original)));
}

std::pair<std::int64_t, std::int64_t> HeadDecomposition::dimensions(std::int64_t pair) const {
  if (interleaved_) return {2 * pair, 2 * pair + 1};
  return {pair, pair + rotary_pairs()};
}

void HeadDecomposition::rotate(Matrix& rows, std::int64_t position) const {
  const auto factor = static_cast<double>(frequencies_.attention_factor);
  for (std::int64_t pair = 0; pair < rotary_pairs(); ++pair) {
    const auto [a, b] = dimensions(pair);
    // The forward pass computes RoPE angles in float32; round them in the same way.
    const float angle = static_cast<float>(position) * frequencies_.inverse[as_index(pair)];
    const double cosine = factor * std::cos(static_cast<double>(angle));
    const double sine = factor * std::sin(static_cast<double>(angle));
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      const double x = rows(row, a);
      const double y = rows(row, b);
      rows(row, a) = x * cosine - y * sine;
      rows(row, b) = y * cosine + x * sine;
    }
  }
}

std::vector<double> HeadDecomposition::split_score_by_rotary_pair(const double* query,
                                                                  const double* key) const {
  std::vector<double> terms(as_index(rotary_pairs()) + 1, 0.0);
  for (std::int64_t pair = 0; pair < rotary_pairs(); ++pair) {
    const auto [a, b] = dimensions(pair);
    terms[as_index(pair)] = query[a] * key[a] + query[b] * key[b];
  }
  for (auto c = 2 * rotary_pairs(); c < q.values.cols; ++c) terms.back() += query[c] * key[c];
  return terms;
}

double HeadDecomposition::score_at_distance(std::int64_t i, const double* query, const double* key,
                                            std::int64_t distance) const {
  const auto factor = static_cast<double>(frequencies_.attention_factor);
  double sum = 0;
  for (std::int64_t pair = 0; pair < rotary_pairs(); ++pair) {
    const auto [a, b] = dimensions(pair);
    const double angle = frequency(pair) * static_cast<double>(distance);
    sum += factor * factor *
           ((query[a] * key[a] + query[b] * key[b]) * std::cos(angle) +
            (query[a] * key[b] - query[b] * key[a]) * std::sin(angle));
  }
  for (auto c = 2 * rotary_pairs(); c < q.values.cols; ++c) sum += query[c] * key[c];
  return sum * scale_at(q.positions[as_index(i)]);
}

}  // namespace qkscope
