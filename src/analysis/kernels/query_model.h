// How a head's queries depend on position: a linear drift, turned onto the first axis, and noise
// around it, overall and bucket by bucket.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/moments.h"
#include "numerics/normality.h"

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
  std::vector<Normality> normality;       // (dim): of the residuals
  std::vector<QueryBucket> buckets;       // ascending
};

inline constexpr double kVarianceFloor = 1e-12;

QueryModel fit_queries(const CentredRows& queries, const CentredRows& keys);

// Row i, centred, with the model's signs and reflection applied: (dim).
void copy_rotated(const CentredRows& rows, std::int64_t i, const QueryModel& model, double* out);
// The same for one vector.
std::vector<double> rotate(std::span<const double> x, const QueryModel& model);

}  // namespace qkscope
