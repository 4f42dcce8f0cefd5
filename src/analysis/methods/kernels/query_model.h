// How a head's queries depend on position: a linear drift, turned onto the first axis, and noise
// around it, overall and bucket by bucket.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/methods/moments.h"
#include "base/numerics/normality.h"

namespace qkscope {

// What the queries of one position bucket look like in rotated coordinates.
struct QueryBucket {
  std::int32_t bucket = 0;
  std::int64_t count = 0;
  double position = 0;           // mean position of its queries
  std::vector<double> mean;      // (dim)
  std::vector<double> variance;  // (dim), ddof 1, at least the floor; empty below two queries
};

struct QueryModel {
  std::vector<double> sign;        // (dim): of the key mean averaged over buckets
  std::vector<double> reflection;  // (dim): Householder vector that takes the first axis to the
                                   // drift; empty for the identity
  std::vector<double> r_squared;   // (dim): of each original dimension on position
  double r_squared_mean = 0;
  double beta_norm = 0;  // per token

  // Position from the projection on the drift: log2(position + 1) regressed on it.
  double scalar_r_squared = 0;
  double mae_baseline = 0;
  double mae_projection = 0;

  // In rotated coordinates.
  std::vector<double> alpha;              // (dim): mean query at position 0
  std::vector<double> beta;               // (dim): per token
  std::vector<double> residual_variance;  // (dim)
  std::vector<Normality> normality;       // (dim): of the residuals; empty without rows
  std::vector<QueryBucket> buckets;       // ascending
};

inline constexpr double kVarianceFloor = 1e-12;

// 1 or -1 for every dimension: the sign of the keys' mean over buckets. The same for all query
// heads that read these keys.
std::vector<double> key_signs(const CentredRows& keys);
QueryModel fit_queries(const CentredRows& queries, std::vector<double> signs);

// What else the model takes where there are no rows: u = log2(position + 1) of every query.
struct LogPositions {
  double scatter = 0;                 // sum of (u - mean)^2
  double mean_deviation = 0;          // mean of |u - mean|
  std::vector<double> cross_scatter;  // (dim): sum of centred * (u - mean)
};

// The queries of one bucket in their own coordinates.
struct QueryBucketMoments {
  std::int32_t bucket = 0;
  std::int64_t count = 0;
  double position = 0;       // mean
  std::vector<double> mean;  // (dim)
  Matrix scatter;            // (dim, dim); empty where only means were kept
};

// The same model without rows: `signs` (dim) are those of the keys. mae_projection is NaN, and
// there is no normality.
QueryModel fit_moments(const Moments& queries, const LogPositions& log_positions,
                       std::vector<double> signs, std::span<const QueryBucketMoments> buckets);

// +1 or -1 per dimension: the sign of the mean over buckets of the keys' mean in each; 0 counts as
// +. `means`: (buckets that hold keys, dim).
std::vector<double> signs_of(const Matrix& means);

// Rows in the model's rotated coordinates around their mean: (rows, dim). `order`: the rows wanted,
// in the order of the output; empty: all.
Matrix turned_rows(const CentredRows& rows, const QueryModel& model,
                   std::span<const std::int64_t> order = {});

// x with the model's signs and reflection applied.
std::vector<double> rotate(std::span<const double> x, const QueryModel& model);

}  // namespace qkscope
