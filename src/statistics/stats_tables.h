// The tables of a folder of statistics: what follows from the sums, and what is kept per document.
#pragma once

#include <memory>
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

// The documents of a finished folder, in order.
std::unique_ptr<DocumentSource> open_documents(const std::string& folder,
                                               const Statistics& statistics);

// columns/l03h12.parquet
std::string key_sums_file(const LayerHead& head);

}  // namespace qkscope
