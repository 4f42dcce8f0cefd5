// Statistics as a whole (qkscope/statistics.h): merging those of different documents.
#pragma once

#include "qkscope/statistics.h"

namespace qkscope {

// into = both together, the documents of `part` after those of `into`. What makes them statistics
// of different things is bad input that names it; `where` and `part_where` say which they are.
void merge_statistics(Statistics& into, const Statistics& part, const std::string& where,
                      const std::string& part_where);

// Fills positions and bucket_positions from the list of lengths.
void set_positions(Statistics& statistics);

}  // namespace qkscope
