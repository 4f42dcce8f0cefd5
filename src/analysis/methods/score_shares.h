// Shares of score variance from sampled (query, key) pairs of a capture: how much scores depend on
// distance, key and query, and on the content or the position of a key.
#pragma once

#include <cstdint>

#include "analysis/methods/moments.h"
#include "analysis/methods/rotary.h"
#include "qkscope/analysis.h"

namespace qkscope {

// Queries and keys of one head in the form in which they enter the dot product.
struct DotProductRows {
  const RowsView& queries;
  const RowsView& keys;
  const TextGroups& texts;  // groups of the jackknife
  std::int64_t window = 0;  // keys that a query attends to; 0: all earlier keys
};

// Adds distance_share, key_share, query_share: shares of the variance of the score over pairs with
// the key before the query that a one-way analysis of variance explains (omega squared) by the bin
// of the distance, by the key, by the query; residual_share, the rest; and distance_share_null with
// the positions of a text's keys permuted. Uses every pair if there are at most
// options.score_pairs, else a seeded sample.
//
// Adds symbolic_score and positional_score unless `rope` is null (unknown; NoPE layers have an
// embedding without pairs). Two keys of a query's text exchange their vectors before RoPE while
// their positions stay: the score before is correlated, within queries, with the score of the same
// content at the other position (symbolic) and of the other content at the same position
// (positional). swap_null keeps neither.
//
// The result does not depend on the order of rows.
void add_score_columns(const DotProductRows& rows, const RotaryEmbedding* rope,
                       const GeometryOptions& options, std::uint64_t seed, GeometryResult& result);

}  // namespace qkscope
