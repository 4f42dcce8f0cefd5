// Creates tables without rows from a one-line schema.
#pragma once

#include <string>

#include "qkscope/tables.h"

namespace qkscope {

// Returns an empty table with the given schema, for example "integer run, real r_q, text model".
Table empty_table(const std::string& columns);

}  // namespace qkscope
