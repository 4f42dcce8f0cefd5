// Bindings of qkscope/tables.h.
#include "tables.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

const char* type_name(Table::Type type) {
  switch (type) {
    case Table::Type::integer:
      return "integer";
    case Table::Type::real:
      return "real";
    case Table::Type::boolean:
      return "boolean";
    case Table::Type::text:
      break;
  }
  return "text";
}

// Returns a NumPy view of a numeric column; `owner` keeps the memory alive.
template <typename T>
nb::object numbers(const std::vector<T>& values, nb::handle owner) {
  const std::size_t size = values.size();
  return nb::cast(nb::ndarray<nb::numpy, const T>(values.data(), 1, &size, owner));
}

nb::object values_of(const Table::Column& column, nb::handle owner) {
  if (column.type == Table::Type::text) return nb::cast(column.texts);
  if (column.type == Table::Type::real) return numbers(column.reals, owner);
  return numbers(column.integers, owner);
}

}  // namespace

Columns columns_of(const Table& table, nb::handle owner) {
  Columns columns;
  for (const auto& column : table.columns())
    columns.append(nb::make_tuple(column.name, type_name(column.type), values_of(column, owner)));
  return columns;
}

void bind_tables(nb::module_& module) {
  nb::class_<HeldTable>(module, "Table")
      .def_prop_ro(
          "columns",
          [](nb::pointer_and_handle<HeldTable> held) { return columns_of(held.p->table, held.h); },
          "[(name, type, values)]")
      .def(
          "write_csv",
          [](const HeldTable& held, const std::string& path) { held.table.write_csv(path); },
          nb::arg("path"));
}

}  // namespace qkscope::python
