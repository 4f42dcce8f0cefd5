// The queries' model without each group of texts in turn, from sums over groups and buckets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/methods/kernels/key_pairs.h"
#include "analysis/methods/moments.h"
#include "analysis/methods/text_groups.h"

namespace qkscope {

// What fit_queries() would make of the texts that are left, as far as a profile needs it.
struct QueryReplicate {
  std::vector<double> sign;        // (dim)
  std::vector<double> reflection;  // (dim); empty for the identity
  QueryColumns columns;            // one for each of the model of all texts
  std::vector<double> position;  // (columns): where its mean stands; NaN where too few queries are
                                 // left for a model
};

// `buckets`: those of the columns; empty: one column of all queries, which drift with position.
std::vector<QueryReplicate> fit_queries_without_groups(const CentredRows& queries,
                                                       const CentredRows& keys,
                                                       const TextGroups& texts,
                                                       std::span<const std::int32_t> buckets);

}  // namespace qkscope
