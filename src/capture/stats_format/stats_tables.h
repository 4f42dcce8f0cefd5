// Tables of finished statistics.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/core/numbers.h"
#include "qkscope/statistics.h"
#include "qkscope/tables.h"

namespace qkscope {

// Writes every table for which the statistics have data into an existing folder.
void write_statistics_tables(const std::string& folder, const Statistics& statistics,
                             DocumentSource& documents);

// attention.parquet: one row per head and bucket, and one row per head over all buckets, with
// bucket null.
Table attention_table(const Statistics& statistics);
// distance.parquet: attention mass per band of distances.
Table distance_table(const Statistics& statistics);

// Reads the trials of retrieval.parquet; returns none if the file does not exist.
std::vector<RetrievalTrial> read_retrieval_trials(const std::string& folder,
                                                  const Statistics& statistics);

// ---- Tables per document ----

// Writes attention_documents.parquet and the folder columns/ from a stream of documents.
void write_document_tables(const std::string& folder, const Statistics& statistics,
                           DocumentSource& documents);

// Reads the documents of a finished folder in order. Returns nullptr for statistics without them.
std::unique_ptr<DocumentSource> open_document_tables(const std::string& folder,
                                                     const Statistics& statistics);

// ---- Leading columns of tables about query heads ----

// Adds columns to a table and returns it.
inline Table add_table_columns(std::initializer_list<std::pair<const char*, Table::Type>> columns,
                               Table table = {}) {
  for (const auto& [name, type] : columns) table.column(name, type);
  return table;
}

// Adds the columns layer, head, k_head and rope.
inline Table add_head_columns(Table table = {}) {
  return add_table_columns({{"layer", Table::Type::integer},
                            {"head", Table::Type::integer},
                            {"k_head", Table::Type::integer},
                            {"rope", Table::Type::text}},
                           std::move(table));
}
// Returns the cells of the head columns (add_head_columns()). `layer` indexes Statistics::layers.
inline std::vector<Table::Cell> head_column_cells(const Statistics& s, std::int64_t layer,
                                                  std::int64_t head) {
  const bool rope = s.rotary[as_index(layer)] > 0;
  return {s.layers[as_index(layer)], head, head / (s.heads / s.key_heads),
          std::string(rope ? "rope" : "nope")};
}

}  // namespace qkscope
