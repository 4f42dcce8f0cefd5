// Geometry of a head from sums over its vectors and its attention: ranks, use of RoPE frequencies,
// preferred query-key distances and how attention decays with distance. Definitions and sources:
// docs/explanation/geometry.md.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analysis/methods/moments.h"
#include "base/core/numbers.h"
#include "base/numerics/matrix.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Dimension pair p of a vector is rotated by position * inv_freq[p] radians. Dimensions outside the
// pairs are not rotated. A layer without RoPE has no pairs.
struct RotaryEmbedding {
  std::vector<double> inv_freq;   // (pairs), in the order of the pairs
  bool interleaved = false;       // pair p is (2p, 2p + 1) instead of (p, p + pairs)
  double attention_factor = 1.0;  // multiplies rotated dimensions of queries and of keys (YaRN)
  std::size_t begin = 0;          // first dimension of the pairs

  std::size_t pair_count() const { return inv_freq.size(); }
  // Returns the two dimensions of pair p, the real and the imaginary part of a complex number.
  std::pair<std::size_t, std::size_t> pair_dimensions(std::size_t p) const {
    return interleaved ? std::pair(begin + 2 * p, begin + 2 * p + 1)
                       : std::pair(begin + p, begin + p + pair_count());
  }
};

// Rotates each vector by -position * inv_freq, which undoes RoPE at `position`. The vectors share
// sines and cosines.
inline void undo_rope(const RotaryEmbedding& rope, std::int64_t position,
                      std::span<const std::span<double>> vectors) {
  for (std::size_t p = 0; p < rope.pair_count(); ++p) {
    const double angle = static_cast<double>(position) * rope.inv_freq[p];
    const double cosine = std::cos(angle);
    const double sine = std::sin(angle);
    const auto [real, imaginary] = rope.pair_dimensions(p);
    for (const auto& x : vectors) {
      const double turned = cosine * x[real] + sine * x[imaginary];
      x[imaginary] = cosine * x[imaginary] - sine * x[real];
      x[real] = turned;
    }
  }
}

// ---- Effective ranks of a positive semidefinite matrix with eigenvalues l_1 >= l_2 >= ...

struct EffectiveRanks {
  double participation = kNan;  // (sum l)^2 / sum l^2
  double entropy = kNan;        // exp(-sum p ln p) with p = l / sum l
  double rank_90 = kNan;        // smallest r with l_1 + ... + l_r >= 0.9 sum l
  double entropy_top = kNan;    // entropy of the 16 largest, normalised to their sum, over ln 16
};

// `eigenvalues` are descending; values below 1e-12 of the largest count as 0. NaN if all are 0.
EffectiveRanks effective_ranks(std::vector<double> eigenvalues);

Matrix second_moment(const Moments& rows);  // (dim, dim): mean of x x^T

// Returns the eigenvalues of the product A B of positive semidefinite matrices in descending order.
// For second moments A and B of independent q and k, the eigenvalues sum to tr(A B) = E[(q . k)^2].
std::vector<double> product_spectrum(const Matrix& a, const Matrix& b);

// Ranks of the covariance of a head's queries, keys or values.
struct CovarianceRanks {
  EffectiveRanks ranks;
  double dim = 0;
  std::vector<double> participation_without = {};  // (groups of texts, or empty)
};
CovarianceRanks covariance_ranks(const Moments& rows);
// Computes the effective ranks from the eigenvalues of a scatter matrix. `without`: moments without
// one group of texts each, for jackknife replicates of the participation rank; may be empty.
CovarianceRanks covariance_ranks(const std::vector<double>& spectrum,
                                 std::span<const Moments> without);

// Adds the rank and entropy columns rank_participation_NAME ... entropy_top_NAME.
void add_rank_columns(const std::string& name, const CovarianceRanks& side, GeometryResult& result);

// Adds the columns logit_rank_NAME and massive_SIDE, for vectors as they enter the dot product.
void add_logit_columns(const Moments& queries, const Moments& keys, GeometryResult& result);

// ---- Use of RoPE frequencies, computed from vectors before RoPE

// Moments of the queries or keys, and the mean length of each rotary pair.
struct RotaryMoments {
  const Moments& rows;
  std::span<const double> pair_abs;  // (pairs): mean of |z_p|
};

// Fills result.pairs, and adds the columns concentration_SIDE and frequency_use_NAME.
void add_frequency_columns(const RotaryMoments& queries, const RotaryMoments& keys,
                           const RotaryEmbedding& rope, GeometryResult& result);

// Returns S(D) for D in [0, distances): the score of the mean query and the mean key (before RoPE)
// at distance D, times `scale`.
std::vector<double> mean_score_by_distance(const Moments& queries, const Moments& keys,
                                           const RotaryEmbedding& rope, double scale,
                                           std::int64_t distances);

// ---- Attention by distance

// Attention between queries and keys that are [low, high) tokens apart.
struct DistanceBin {
  std::int64_t low = 0;
  std::int64_t high = 0;
  double mass = 0;                 // sum of attention weights over all pairs
  double relative_se = kNan;       // standard error of the mass over texts, relative to the mass
  std::vector<double> pairs = {};  // (high - low): (query, key) pairs at each distance
  double queries = 0;              // queries that have a key at distance `low`

  double pair_count() const { return sum(pairs); }
  // Natural logarithm of the mean attention per (query, key) pair.
  double log_mean_attention() const { return std::log(mass / pair_count()); }
  double mean_log_distance() const;
};

// Adds the columns distance_preference (distance with the largest mean score), the range of mean
// scores, and their correlation with the log of the measured attention by distance.
void add_distance_preference_columns(const std::vector<double>& score,
                                     std::span<const DistanceBin> bins, GeometryResult& result);

// Adds decay_exponent and decay_r2: ln attention per key against ln distance, least squares over
// bins inside [4, length / 4], weighted by the number of queries that reach the bin.
void add_attention_decay_columns(std::span<const DistanceBin> bins, std::int64_t length,
                                 GeometryResult& result);

// Queries and keys of one head in the form in which they enter the dot product.
struct QueryKeyRows {
  const RowsView& queries;
  const RowsView& keys;
  const JackknifeGroups& texts;  // groups of the jackknife
  std::int64_t window = 0;       // keys that a query attends to; 0: all earlier keys
};

// Adds the columns distance_share, key_share and query_share: shares of the score variance, over
// pairs of a query and an earlier key, that a one-way analysis of variance (omega squared) explains
// by the distance bin, by the key, by the query; residual_share, the rest; and distance_share_null,
// with the key positions of each text permuted. Uses every pair if there are at most
// options.score_pairs, else a seeded sample.
//
// Adds symbolic_score and positional_score unless `rope` is null (unknown; NoPE layers have an
// embedding without pairs). Two keys of a query's text swap contents (their vectors before RoPE) or
// positions. The score before the swap is correlated, within queries, with the score of the same
// content at the other position (symbolic_score), of the other content at the same position
// (positional_score), and of the other content at a third position (swap_null).
//
// The result does not depend on the order of rows.
void add_score_columns(const QueryKeyRows& rows, const RotaryEmbedding* rope,
                       const GeometryOptions& options, std::uint64_t seed, GeometryResult& result);

}  // namespace qkscope
