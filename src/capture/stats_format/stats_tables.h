// Tables of finished statistics that derive from the sums.
#pragma once

#include <string>
#include <vector>

#include "qkscope/statistics.h"
#include "qkscope/tables.h"

namespace qkscope {

// Writes every table for which the statistics have data into an existing folder.
void write_tables(const std::string& folder, const Statistics& statistics,
                  DocumentSource& documents);

// attention.parquet: one row per head and bucket; an empty bucket stands for all rows.
Table attention_table(const Statistics& statistics);
// distance.parquet: attention mass per band of distances.
Table distance_table(const Statistics& statistics);

// Reads the trials of retrieval.parquet; returns none if the file does not exist.
std::vector<RetrievalTrial> read_retrieval(const std::string& folder, const Statistics& statistics);

}  // namespace qkscope
