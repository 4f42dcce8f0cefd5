// qkscope/analysis.h
#include "qkscope/analysis.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

// The result tables and the heads that have none: (layer, head, why).
struct Analysis {
  AnalyzeOptions options;
  AnalysisRun run;
  ResultTables results;
};

Analysis analyze(const AnalyzeOptions& options) {
  Analysis analysis{options, {}, {}};
  analysis.run = analyze_capture(analysis.options);
  analysis.results = result_tables(analysis.run, analysis.options);
  return analysis;
}

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

// A view of numbers that `owner` keeps alive.
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

// {table: [(column, type, values)]}
nb::dict tables_of(nb::pointer_and_handle<Analysis> analysis) {
  nb::dict tables;
  for (const auto& entry : analysis.p->results.tables) {
    nb::list columns;
    for (const auto& column : entry.table.columns())
      columns.append(
          nb::make_tuple(column.name, type_name(column.type), values_of(column, analysis.h)));
    tables[entry.name.c_str()] = columns;
  }
  return tables;
}

nb::list failures_of(const Analysis& analysis) {
  nb::list failures;
  for (const auto& head : analysis.run.heads)
    if (!head.error.empty())
      failures.append(nb::make_tuple(head.query.layer, head.query.head, head.error));
  return failures;
}

}  // namespace

void bind_analysis(nb::module_& module) {
  nb::class_<AnalyzeOptions>(module, "AnalyzeOptions")
      .def(nb::init<>())
      .def_rw("data_root", &AnalyzeOptions::data_root)
      .def_rw("label", &AnalyzeOptions::label)
      .def_rw("pre_rope", &AnalyzeOptions::pre_rope)
      .def_rw("keys", &AnalyzeOptions::keys)
      .def_rw("pca", &AnalyzeOptions::pca)
      .def_rw("rotation", &AnalyzeOptions::rotation)
      .def_rw("plasticity", &AnalyzeOptions::plasticity)
      .def_rw("model", &AnalyzeOptions::model)
      .def("set_head_counts",
           [](AnalyzeOptions& options, int query_heads, int key_heads) {
             options.head_counts = HeadCounts{query_heads, key_heads};
           })
      .def_rw("nope_layers", &AnalyzeOptions::nope_layers)
      .def_rw("max_tokens", &AnalyzeOptions::max_tokens)
      .def_rw("seed", &AnalyzeOptions::seed)
      .def_rw("quiet", &AnalyzeOptions::quiet);
  nb::class_<Analysis>(module, "Analysis")
      .def_prop_ro("tables", &tables_of)
      .def_prop_ro("failures", &failures_of)
      .def(
          "write",
          [](const Analysis& analysis, const std::string& folder) {
            write_results(folder, analysis.run, analysis.options);
          },
          nb::arg("folder"), nb::call_guard<nb::gil_scoped_release>());
  module.def("analyze", &analyze, nb::arg("options"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace qkscope::python
