// Tables of the library for Python: columns as they are, without a copy of numbers.
#pragma once

#include <nanobind/nanobind.h>

#include "qkscope/tables.h"

namespace qkscope::python {

// A table that Python holds on to while it reads the columns.
struct HeldTable {
  Table table;
};

// [(name, type, values)]; values of numbers are views that `owner` keeps alive.
nanobind::list columns_of(const Table& table, nanobind::handle owner);

}  // namespace qkscope::python
