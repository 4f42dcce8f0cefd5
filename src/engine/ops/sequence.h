// Mapping between the rows of a batch and its queries: all rows, or an ascending subset.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "qkscope/forward.h"

namespace qkscope {

// Returns the row of a query. `queries` are ascending rows; empty means all rows.
inline std::int64_t row_of_query(std::int64_t query, std::span<const std::int64_t> queries) {
  return queries.empty() ? query : queries[static_cast<std::size_t>(query)];
}

// Returns the queries [first, end) that belong to the sequence.
inline std::pair<std::int64_t, std::int64_t> queries_of(const Sequence& sequence,
                                                        std::span<const std::int64_t> queries) {
  if (queries.empty()) return {sequence.begin, sequence.begin + sequence.length};
  const auto at = [&](std::int64_t row) {
    return std::lower_bound(queries.begin(), queries.end(), row) - queries.begin();
  };
  return {at(sequence.begin), at(sequence.begin + sequence.length)};
}

// Returns the first key row of a sequence in tensors that include cached positions.
inline std::int64_t first_key_row(std::span<const Sequence> sequences, std::size_t index) {
  auto row = sequences[index].begin;
  for (std::size_t i = 0; i < index; ++i) row += sequences[i].past;
  return row;
}

}  // namespace qkscope
