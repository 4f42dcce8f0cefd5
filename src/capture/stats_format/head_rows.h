// Leading columns that all tables of statistics about query heads share.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/core/index.h"
#include "qkscope/statistics.h"
#include "qkscope/tables.h"

namespace qkscope {

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
