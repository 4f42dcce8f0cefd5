// Merging of whole Statistics objects (qkscope/statistics.h) of different documents.
#pragma once

#include "qkscope/statistics.h"

namespace qkscope {

// Appends the documents of `part` to `into`. Throws bad input that names the first property in
// which the two differ; `where` and `part_where` name the two sides in the message.
void merge_statistics(Statistics& into, const Statistics& part, const std::string& where,
                      const std::string& part_where);

// Computes positions and bucket_positions from the list of document lengths.
void set_positions(Statistics& statistics);

}  // namespace qkscope
