// Attention plasticity: how often the choice between two keys of one text would flip with the
// query's content, at each query position.
#pragma once

#include <cstdint>
#include <span>

#include "analysis/methods/kernels/query_model.h"
#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"

namespace qkscope {

// What a model of the queries tells by itself: everything that compares keys, and the residuals'
// normality where the model has none, is NaN or empty.
PlasticityResult plasticity_of_model(const QueryModel& model, const PlasticityOptions& options);

// Queries of which the model and the positions are known, and maybe the rows.
struct ModelledQueries {
  QueryModel model;
  Rows positions;                       // distinct positions and their buckets; no vectors
  std::span<const std::int64_t> times;  // (positions): queries at each
  std::int64_t count = 0;               // of all queries
  const CentredRows* rows = nullptr;    // null: neither ap_free nor replicates
};

// With keys of a capture.
PlasticityResult plasticity_with_keys(const ModelledQueries& queries, const CentredRows& keys,
                                      const PlasticityOptions& options);

// `signs`: key_signs() of the keys.
PlasticityResult attention_plasticity(const CentredRows& queries, const CentredRows& keys,
                                      std::vector<double> signs, const PlasticityOptions& options);
inline PlasticityResult attention_plasticity(const CentredRows& queries, const CentredRows& keys,
                                             const PlasticityOptions& options) {
  return attention_plasticity(queries, keys, key_signs(keys), options);
}

}  // namespace qkscope
