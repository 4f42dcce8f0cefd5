// The tables of a folder of statistics: what follows from the sums. Those of documents are
// in document_tables.h.
#pragma once

#include <string>
#include <vector>

#include "qkscope/statistics.h"
#include "qkscope/tables.h"

namespace qkscope {

// All that the statistics have numbers for, into a folder that is there.
void write_tables(const std::string& folder, const Statistics& statistics,
                  DocumentSource& documents);

// attention.parquet: one row for each head and bucket; bucket is empty for all rows together.
Table attention_table(const Statistics& statistics);
// distance.parquet: the mass of each band of distances.
Table distance_table(const Statistics& statistics);

// The trials of retrieval.parquet; none where there is no such file.
std::vector<RetrievalTrial> read_retrieval(const std::string& folder, const Statistics& statistics);

}  // namespace qkscope
