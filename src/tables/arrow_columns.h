// Columns of a Table as Arrow has them, and back.
#pragma once

#include <memory>
#include <string>

#include <arrow/type_fwd.h>

#include "qkscope/tables.h"

namespace qkscope {

// What has no value becomes null.
std::shared_ptr<arrow::Table> to_arrow(const Table& table);

enum class Gaps { refuse, keep };  // integers and booleans that are null

// `where` names file and column in messages.
Table::Column from_arrow(const std::string& name, const arrow::ChunkedArray& column, Gaps gaps,
                         const std::string& where);

}  // namespace qkscope
