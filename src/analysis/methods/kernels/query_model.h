// Linear model of a head's queries over position: drift rotated onto the first axis, with residual
// variance overall and per bucket.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/methods/moments.h"
#include "base/numerics/sample_statistics.h"

namespace qkscope {

// Mean and variance of the queries of one position bucket in rotated coordinates.
struct QueryBucketGaussian {
  std::int32_t bucket = 0;
  std::int64_t count = 0;
  double position = 0;           // mean position of the queries
  std::vector<double> mean;      // (dim)
  std::vector<double> variance;  // (dim): ddof 1, at least kVarianceFloor; empty below two queries
};

struct LinearQueryModel {
  std::vector<double> sign;        // (dim): sign of the key mean averaged over buckets
  std::vector<double> reflection;  // (dim): Householder vector that maps the first axis to the
                                   // drift; empty for the identity
  std::vector<double> r_squared;   // (dim): R^2 of each original dimension on position
  double r_squared_mean = 0;
  double beta_norm = 0;  // per token

  // Regression of log2(position + 1) on the drift coordinate.
  double scalar_r_squared = 0;
  double mae_baseline = 0;
  double mae_projection = 0;

  // In rotated coordinates.
  std::vector<double> alpha;                   // (dim): mean query at position 0
  std::vector<double> beta;                    // (dim): per token
  std::vector<double> residual_variance;       // (dim)
  std::vector<NormalityStatistics> normality;  // (dim): normality of residuals; empty without rows
  std::vector<QueryBucketGaussian> buckets;    // ascending by bucket
};

inline constexpr double kVarianceFloor = 1e-12;

// Returns 1 or -1 per dimension: the sign of the key mean averaged over buckets, shared by all
// query heads that read these keys.
std::vector<double> key_mean_signs(const CentredRows& keys);
// Fits the linear query model. If `bucket_variances` is false, every bucket gets the mean over all
// queries and no variance.
LinearQueryModel fit_query_model(const CentredRows& queries, std::vector<double> signs,
                                 bool bucket_variances = true);

// Sums of u = log2(position + 1) over all queries, to fit a model from moments instead of rows.
struct LogPositionSums {
  double scatter = 0;                 // sum of (u - mean)^2
  double mean_deviation = 0;          // mean of |u - mean|
  std::vector<double> cross_scatter;  // (dim): sum of centred * (u - mean)
};

// Mean and scatter of the queries of one bucket, before rotation.
struct QueryBucketMoments {
  std::int32_t bucket = 0;
  std::int64_t count = 0;
  double position = 0;       // mean
  std::vector<double> mean;  // (dim)
  Matrix scatter;            // (dim, dim); empty where only means were kept
};

// Fits the query model from moments; mae_projection is NaN, normality empty. `signs` (dim): of
// keys.
LinearQueryModel fit_query_model_from_moments(const Moments& queries,
                                              const LogPositionSums& log_positions,
                                              std::vector<double> signs,
                                              std::span<const QueryBucketMoments> buckets);

// Averages bucket means, shape (buckets, dim), and returns the sign of each dimension; +1 for 0.
std::vector<double> signs_of_bucket_means(const Matrix& means);

// Returns centred rows in the coordinates of the linear query model, whose first axis is the drift
// direction; shape (rows, dim). `order` lists the rows to return; if empty, all rows.
FloatMatrix rotate_centred_rows(const CentredRows& rows, const LinearQueryModel& model,
                                std::span<const std::int64_t> order = {});

// Converts x to the coordinates of the query model: flips signs, then applies the Householder
// reflection of the model.
std::vector<double> rotate_vector(std::span<const double> x, const LinearQueryModel& model);

}  // namespace qkscope
