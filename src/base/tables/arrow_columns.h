// Columns of a Table as Arrow has them, and back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <arrow/type_fwd.h>
#include <parquet/type_fwd.h>

#include "qkscope/tables.h"

namespace qkscope {

inline constexpr std::int64_t kTableRowGroup = std::int64_t{1} << 20;  // rows, in Parquet files

// Where all else is from: what an analysis left is taken again for its tables.
arrow::MemoryPool* table_memory();

// How tables are stored: reals, of which hardly any is there twice, have no dictionary.
std::shared_ptr<parquet::WriterProperties> table_properties(const arrow::Schema& schema);

// What has no value becomes null.
std::shared_ptr<arrow::Table> to_arrow(const Table& table);

enum class Gaps { refuse, keep };  // integers and booleans that are null

// `where` names file and column in messages.
Table::Column from_arrow(const std::string& name, const arrow::ChunkedArray& column, Gaps gaps,
                         const std::string& where);

}  // namespace qkscope
