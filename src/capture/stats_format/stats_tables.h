// Tables of finished statistics.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/core/numbers.h"
#include "base/tables/empty_table.h"
#include "qkscope/statistics.h"

namespace qkscope {

// Writes all tables for which the statistics contain data into an existing folder.
void write_statistics_tables(const std::string& folder, const Statistics& statistics,
                             DocumentSource& documents);

// attention.parquet: one row per head and bucket, plus one row per head with bucket null (total).
Table attention_table(const Statistics& statistics);
// distance.parquet: attention mass per distance band.
Table distance_table(const Statistics& statistics);

// Reads the trials from retrieval.parquet, or none if the file does not exist.
std::vector<RetrievalTrial> read_retrieval_trials(const std::string& folder,
                                                  const Statistics& statistics);

// ---- Tables per document ----

// Writes attention_documents.parquet and the folder columns/ from a stream of documents.
void write_document_tables(const std::string& folder, const Statistics& statistics,
                           DocumentSource& documents);

// Reads the documents of a finished folder in order. Returns nullptr if it has no document tables.
std::unique_ptr<DocumentSource> open_document_tables(const std::string& folder,
                                                     const Statistics& statistics);

// ---- Leading columns of tables that have a row per query head ----

// Column declarations in the syntax of empty_table().
inline constexpr char kHeadColumns[] = "integer layer, integer head, integer k_head, text rope";

// Returns the cells for the columns in kHeadColumns. `layer` is an index into Statistics::layers.
inline std::vector<Table::Cell> head_column_cells(const Statistics& s, std::int64_t layer,
                                                  std::int64_t head) {
  const bool rope = s.rotary[as_index(layer)] > 0;
  return {s.layers[as_index(layer)], head, head / (s.heads / s.key_heads),
          std::string(rope ? "rope" : "nope")};
}

}  // namespace qkscope
