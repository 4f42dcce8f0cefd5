// Tables per document: attention_documents.parquet and the folder columns/; and the leading columns
// that all tables of statistics about query heads share.
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

// Writes both from a stream of documents.
void write_documents(const std::string& folder, const Statistics& statistics,
                     DocumentSource& documents);

// Reads the documents of a finished folder in order.
std::unique_ptr<DocumentSource> open_documents(const std::string& folder,
                                               const Statistics& statistics);

// Returns a relative path such as "columns/l03h12.parquet".
std::string key_sums_file(const LayerHead& head);

inline std::string rope_of(const Statistics& s, std::int64_t layer_index) {
  return s.rotary[as_index(layer_index)] > 0 ? "rope" : "nope";
}

inline std::int64_t key_head_of(const Statistics& s, std::int64_t head) {
  return head / (s.heads / s.key_heads);
}

inline void declare(Table& table,
                    std::initializer_list<std::pair<const char*, Table::Type>> columns) {
  for (const auto& [name, type] : columns) table.column(name, type);
}

// Declares the columns layer, head, k_head and rope.
inline void declare_head(Table& table) {
  declare(table, {{"layer", Table::Type::integer},
                  {"head", Table::Type::integer},
                  {"k_head", Table::Type::integer},
                  {"rope", Table::Type::text}});
}
inline std::vector<Table::Cell> head_cells(const Statistics& s, std::int64_t layer,
                                           std::int64_t head) {
  return {s.layers[as_index(layer)], head, key_head_of(s, head), rope_of(s, layer)};
}

}  // namespace qkscope
