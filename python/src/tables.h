// Tables of the library for Python: columns as they are, without a copy of numbers.
#pragma once

#include <nanobind/nanobind.h>

#include "qkscope/tables.h"

namespace qkscope::python {

// [(name, type, values)]
using Columns =
    nanobind::typed<nanobind::list,
                    nanobind::typed<nanobind::tuple, nanobind::str, nanobind::str, nanobind::any>>;

// A table that Python holds on to while it reads the columns.
struct HeldTable {
  Table table;
};

// Values of numbers are views that `owner` keeps alive.
Columns columns_of(const Table& table, nanobind::handle owner);

}  // namespace qkscope::python
