// Which rows of a batch are queries: all of them, or some ascending ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "qkscope/forward.h"

namespace qkscope {

// The row of a query. `queries` are rows, ascending; an empty list means all rows.
inline std::int64_t row_of_query(std::int64_t query, std::span<const std::int64_t> queries) {
  return queries.empty() ? query : queries[static_cast<std::size_t>(query)];
}

// The queries [first, end) that lie in the sequence.
inline std::pair<std::int64_t, std::int64_t> queries_of(const Sequence& sequence,
                                                        std::span<const std::int64_t> queries) {
  if (queries.empty()) return {sequence.begin, sequence.begin + sequence.length};
  const auto at = [&](std::int64_t row) {
    return std::lower_bound(queries.begin(), queries.end(), row) - queries.begin();
  };
  return {at(sequence.begin), at(sequence.begin + sequence.length)};
}

// Where the keys of sequence number `index` begin in rows that hold all positions of all sequences,
// those before the batch included.
inline std::int64_t first_key_row(std::span<const Sequence> sequences, std::size_t index) {
  auto row = sequences[index].begin;
  for (std::size_t i = 0; i < index; ++i) row += sequences[i].past;
  return row;
}

}  // namespace qkscope
