// The equation of score attribution for one head: with every norm scale frozen at its value, a
// query is a sum over components q_i = sum_c q_i^c, a key k_j = sum_d k_j^d, and the score is
//
//   s_ij = scale_i sum_{c,d} (R_i q_i^c) . (R_j k_j^d),
//
// where R_t is the rotation of RoPE at position t.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/numerics/matrix.h"
#include "qkscope/experimental/attribution.h"
#include "qkscope/model.h"

namespace qkscope {

// Queries or keys of one head at selected positions, split into components.
struct SplitVectors {
  std::vector<std::string> labels;      // (components)
  std::vector<std::int64_t> positions;  // (rows) ascending
  FloatMatrix values;                   // (rows * components, d_head) before RoPE
  Tensor rotated;                       // (rows, d_head) whole vectors of the pass, after RoPE

  std::int64_t components() const { return std::ssize(labels); }
  // Index of a position among the rows.
  std::int64_t row_at_position(std::int64_t position) const;
  Matrix split(std::int64_t row) const;  // (components, d_head)
};

// Returns the sum of each row, shape (rows), or the sum of each column, shape (cols).
std::vector<double> row_sums(const Matrix& matrix);
std::vector<double> column_sums(const Matrix& matrix);

class HeadDecomposition {
 public:
  // `length`: number of tokens in the text; the RoPE frequencies of some models depend on it.
  HeadDecomposition(const Model& model, AttentionHead head, std::int64_t length);

  SplitVectors q;
  SplitVectors k;
  Tensor v;  // (rows of k, d_head), or empty if effects are not computed

  AttentionHead head() const { return head_; }
  // Score of query row i and key row j, computed as in the forward pass.
  double score(std::int64_t i, std::int64_t j) const;
  // Shape (q components, k components): contributions to the score of query row i and key row j.
  Matrix contributions(std::int64_t i, std::int64_t j) const;
  // Components after RoPE, shape (components, d_head). Queries include the softmax scale.
  Matrix scaled_queries(std::int64_t i) const;
  Matrix rotated_keys(std::int64_t j) const;
  // Softmax of a query's scores, shape (keys up to the query), with soft cap, window and sink.
  std::vector<double> attention(std::vector<double> scores) const;

  // Number of rotary pairs; 0 on NoPE layers.
  std::int64_t rotary_pairs() const { return std::ssize(frequencies_.inverse); }
  double frequency(std::int64_t pair) const {  // radians per token
    return static_cast<double>(frequencies_.inverse[static_cast<std::size_t>(pair)]);
  }
  // Splits the dot product of a scaled, rotated query and a rotated key (d_head) by rotary pair:
  // shape (rotary_pairs() + 1). The last entry covers the dimensions without RoPE.
  std::vector<double> split_score_by_rotary_pair(const double* query, const double* key) const;
  // Score of the unrotated query (d_head) of row i and an unrotated key `distance` tokens earlier.
  double score_at_distance(std::int64_t i, const double* query, const double* key,
                           std::int64_t distance) const;

 private:
  double scale_at(std::int64_t position) const;
  void rotate(Matrix& rows, std::int64_t position) const;
  std::pair<std::int64_t, std::int64_t> dimensions(std::int64_t pair) const;

  AttentionHead head_;
  double scale_;
  double softcap_;       // 0: none
  std::int64_t window_;  // 0: all keys
  std::optional<double> sink_;
  std::optional<QueryScaling> query_scaling_;
  RopeFrequencies frequencies_;  // empty on NoPE layers
  bool interleaved_;
};

}  // namespace qkscope
