// z scores of pairs of keys under Gaussian queries: z = m / sqrt(v) with m = mean . delta and
// v = sum_j variance_j delta_j^2, delta the difference of the two keys (rotated coordinates).
//
// The variances of all pairs at all columns (query models) are a matrix product: squared
// differences (pairs, dim) times variances (dim, columns). compute_z_scores() takes up to
// kTilePairs pairs, so that the squared differences stay in the L1 cache. Squared differences are
// not expanded into products of keys, which would cause cancellation for nearly equal keys.
// Invariant: columns [column, column + columns) exist in `scores` and `variances`, whose rows are
// padded by kNarrowPadding numbers.
// Out-of-row access: reads up to kNarrowPadding numbers after the last wanted column (the padding)
// and writes up to kNarrowPadding numbers after the last row of `z`; callers allocate both.
// A key pair with v = 0 (equal keys) has z = 0: the query has no preference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "analysis/methods/kernels/key_pairs.h"

namespace qkscope {

// mean / sqrt(variance); 0 if the variance is 0. |z| is limited to 1e4, where the plasticity is
// already 0, so that differences of z scores stay finite.
inline float limited_z_score(float mean, float variance) {
  const float least = 1e-8F * mean * mean;  // bounds |z| by 1e4; a clamp of z vectorises badly
  const float z = mean / std::sqrt(std::max(variance, least));
  return variance > 0 ? z : 0;
}

struct PairScoreInput {
  KeyTile keys;
  const FloatMatrix& scores;     // (keys, columns), and kNarrowPadding numbers behind the last row
  const FloatMatrix& variances;  // (dim, columns and at least kNarrowPadding more)
};

// Writes z (pairs, columns) of up to kTilePairs pairs at columns [column, column + columns).
void compute_z_scores(const PairScoreInput& model, std::span<const KeyPair> pairs,
                      std::int64_t column, std::int64_t columns, float* z);
// Reference implementation with plain loops, for the test of compute_z_scores().
void compute_z_scores_reference(const PairScoreInput& model, std::span<const KeyPair> pairs,
                                std::int64_t column, std::int64_t columns, float* z);

}  // namespace qkscope
