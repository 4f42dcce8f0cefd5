// Attention plasticity at each query position: how often the preference between two keys of a text
// would flip if the query had different content.
#pragma once

#include <cstdint>
#include <span>

#include "analysis/methods/kernels/query_model.h"
#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Computes the results that need the query model but no keys. Fields that compare keys are NaN or
// empty, and so is normality if the model was fitted without rows.
PlasticityResult plasticity_of_query_model(const LinearQueryModel& model,
                                           const PlasticityOptions& options);

// A fitted query model, the positions of its queries and, if available, their vectors.
struct FittedQueries {
  LinearQueryModel model;
  RowsView positions;                   // distinct positions and their buckets; no vectors
  std::span<const std::int64_t> times;  // (positions): number of queries at each position
  std::int64_t count = 0;               // number of queries
  const CentredRows* rows = nullptr;    // null: no ap_free and no replicates
};

// Runs the full plasticity analysis: compares the query model with the keys of a capture.
PlasticityResult plasticity_of_queries_and_keys(const FittedQueries& queries,
                                                const CentredRows& keys,
                                                const PlasticityOptions& options);

// Fits the query model and runs the full analysis. `signs`: result of key_mean_signs(keys).
PlasticityResult attention_plasticity(const CentredRows& queries, const CentredRows& keys,
                                      std::vector<double> signs, const PlasticityOptions& options);

}  // namespace qkscope
