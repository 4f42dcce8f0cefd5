// Geometry of a head from sums over its vectors and its attention: ranks, use of RoPE frequencies,
// preferred query-key distances and how attention decays with distance. Definitions and sources:
// docs/explanation/geometry.md.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/methods/moments.h"
#include "analysis/methods/rotary.h"
#include "base/core/numbers.h"
#include "base/numerics/vectors.h"
#include "qkscope/analysis.h"

namespace qkscope {

// ---- Ranks of a positive semidefinite matrix with eigenvalues l_1 >= l_2 >= ...

struct EffectiveRanks {
  double participation = kNan;  // (sum l)^2 / sum l^2
  double entropy = kNan;        // exp(-sum p ln p) with p = l / sum l
  double rank_90 = kNan;        // smallest r with l_1 + ... + l_r >= 0.9 sum l
  double entropy_top = kNan;    // entropy of the 16 largest, normalised to their sum, over ln 16
};

// `eigenvalues` are descending; values below 1e-12 of the largest count as 0. NaN if all are 0.
EffectiveRanks effective_ranks(std::vector<double> eigenvalues);

Matrix second_moment(const Moments& rows);  // (dim, dim): mean of x x^T

// Returns the eigenvalues, descending, of A^(1/2) B A^(1/2) for positive semidefinite A and B. With
// the second moments of independent queries and keys their sum is the mean of (q.k)^2.
std::vector<double> product_spectrum(const Matrix& a, const Matrix& b);

// Ranks of the covariance of a head's queries, keys or values.
struct CovarianceRanks {
  EffectiveRanks ranks;
  double dim = 0;
  std::vector<double> participation_without = {};  // (groups of texts, or empty)
};
CovarianceRanks covariance_ranks(const Moments& rows);
// Computes the ranks from the eigenvalue spectrum of a scatter matrix, and their jackknife
// replicates from leave-one-group-out moments.
CovarianceRanks covariance_ranks(const std::vector<double>& spectrum,
                                 std::span<const Moments> without);

// Adds the rank and entropy columns rank_participation_NAME ... entropy_top_NAME.
void add_rank_columns(const std::string& name, const CovarianceRanks& side, GeometryResult& result);

// Adds logit_rank_NAME and massive_SIDE, for queries and keys as they enter the dot product.
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
  // ln of the mean attention per pair
  double log_mean_attention() const { return std::log(mass / pair_count()); }
  double mean_log_distance() const;
};

// Adds distance_preference (argmax of S), the range of S, and the correlation of S with the log of
// the measured attention by distance.
void add_preference_columns(const std::vector<double>& score, std::span<const DistanceBin> bins,
                            GeometryResult& result);

// Adds decay_exponent and decay_r2: ln attention per key against ln distance, least squares over
// bins inside [4, length / 4], weighted by the number of queries that reach the bin.
void add_decay_columns(std::span<const DistanceBin> bins, std::int64_t length,
                       GeometryResult& result);

}  // namespace qkscope
