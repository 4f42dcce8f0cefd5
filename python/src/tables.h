// Converts tables to columns for Python without copying numbers.
#pragma once

#include <nanobind/nanobind.h>

#include "qkscope/tables.h"

namespace qkscope::python {

// List of (name, type, values).
using Columns =
    nanobind::typed<nanobind::list,
                    nanobind::typed<nanobind::tuple, nanobind::str, nanobind::str, nanobind::any>>;

// A table that Python keeps alive while it reads the columns.
struct HeldTable {
  Table table;
};

// Returns the columns. Numeric columns are views of memory that `owner` keeps alive.
Columns columns_of(const Table& table, nanobind::handle owner);

}  // namespace qkscope::python
