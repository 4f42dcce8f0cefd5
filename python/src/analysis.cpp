// Python bindings for qkscope/analysis.h and qkscope/experimental/options.h.
#include "qkscope/analysis.h"

#include <tuple>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "error.h"
#include "qkscope/experimental/options.h"
#include "tables.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

// An analysis with its options, results and result tables.
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

// Returns the result tables as a dict {table: [(column, type, values)]}.
nb::typed<nb::dict, nb::str, Columns> tables_of(nb::pointer_and_handle<Analysis> analysis) {
  nb::dict tables;
  for (const auto& entry : analysis.p->results.tables)
    tables[entry.name.c_str()] = columns_of(entry.table, analysis.h);
  return tables;
}

// Returns (layer, head, error message) for every head that failed.
std::vector<std::tuple<int, int, std::string>> failures_of(const Analysis& analysis) {
  std::vector<std::tuple<int, int, std::string>> failures;
  for (const auto& head : analysis.run.heads)
    if (!head.error.empty()) failures.emplace_back(head.query.layer, head.query.head, head.error);
  return failures;
}

constexpr const char* kKindNames[] = {"flag", "count",  "number", "choice",
                                      "text", "counts", "layers", "heads"};

std::vector<HeadId> query_heads(const std::vector<std::pair<int, int>>& pairs) {
  std::vector<HeadId> heads;
  for (const auto& [layer, head] : pairs) heads.push_back({layer, head, HeadKind::query});
  return heads;
}

// Converts an option value that the Python package has validated; heads are (layer, head) pairs.
OptionValue value_from(const AnalysisOption& option, nb::handle value) {
  switch (option.kind) {
    case OptionKind::flag:
      return nb::cast<bool>(value);
    case OptionKind::count:
      if (!nb::isinstance<nb::str>(value)) return nb::cast<std::uint64_t>(value);
      break;
    case OptionKind::number:
      return nb::cast<double>(value);
    case OptionKind::choice:
    case OptionKind::text:
      break;
    case OptionKind::counts:
    case OptionKind::layers:
      return nb::cast<std::vector<std::int64_t>>(value);
    case OptionKind::heads:
      return query_heads(nb::cast<std::vector<std::pair<int, int>>>(value));
  }
  return nb::cast<std::string>(value);
}

// Returns the Python default of an option: () for a list, None for a list of fixed length and for a
// count without a fixed default.
nb::object default_of(const AnalysisOption& option) {
  if (const auto* on = std::get_if<bool>(&option.fallback)) return nb::cast(*on);
  if (const auto* word = std::get_if<std::string>(&option.fallback)) return nb::cast(*word);
  if (const auto* real = std::get_if<double>(&option.fallback)) return nb::cast(*real);
  if (const auto* whole = std::get_if<std::uint64_t>(&option.fallback))
    return *whole < option.least ? nb::none() : nb::cast(*whole);
  if (option.length > 0) return nb::none();
  return nb::tuple();
}

void set_option(AnalyzeOptions& options, const AnalysisOption& option, nb::handle value) {
  const auto converted = value_from(option, value);
  if (!option.allows(converted))
    reject("{}={}: expected {}", option.name, nb::repr(value).c_str(), option.expected());
  option.store(options, converted);
}

void bind_options(nb::module_& module) {
  nb::class_<AnalysisOption>(module, "AnalysisOption")
      .def_prop_ro("name", [](const AnalysisOption& option) { return std::string(option.name); })
      .def_prop_ro("group",
                   [](const AnalysisOption& option) { return std::string(title(option.group)); })
      .def_prop_ro("kind",
                   [](const AnalysisOption& option) {
                     return std::string(kKindNames[static_cast<std::size_t>(option.kind)]);
                   })
      .def_prop_ro("help", [](const AnalysisOption& option) { return std::string(option.help); })
      .def_prop_ro("default", &default_of)
      .def_ro("least", &AnalysisOption::least)
      .def_ro("most", &AnalysisOption::most)
      .def_ro("lower", &AnalysisOption::lower)
      .def_ro("upper", &AnalysisOption::upper)
      .def_ro("length", &AnalysisOption::length)
      .def_prop_ro("words",
                   [](const AnalysisOption& option) {
                     return std::vector<std::string>(option.words.begin(), option.words.end());
                   })
      .def_prop_ro("expected", &AnalysisOption::expected);
  module.def("analysis_options", &analysis_options,
             "The rows of the table of options: qkscope/experimental/options.h.");
}

}  // namespace

void bind_analysis(nb::module_& module) {
  bind_options(module);
  nb::class_<AnalyzeOptions>(module, "AnalyzeOptions")
      .def(nb::init<>())
      .def_rw("data_root", &AnalyzeOptions::data_root)
      .def_rw("pca", &AnalyzeOptions::pca)
      .def_rw("rotation", &AnalyzeOptions::rotation)
      .def_rw("plasticity", &AnalyzeOptions::plasticity)
      .def_rw("geometry", &AnalyzeOptions::geometry)
      .def("set", &set_option, nb::arg("option"), nb::arg("value"))
      .def_rw("quiet", &AnalyzeOptions::quiet);
  nb::class_<Analysis>(module, "Analysis")
      .def_prop_ro("tables", &tables_of)
      .def_prop_ro("failures", &failures_of)
      .def(
          "write",
          [](const Analysis& analysis, const std::string& folder, bool overwrite) {
            write_results(folder, analysis.run, analysis.options, overwrite);
          },
          nb::arg("folder"), nb::arg("overwrite"), nb::call_guard<nb::gil_scoped_release>());
  module.def("check_results_folder", &check_results_folder, nb::arg("folder"), nb::arg("options"),
             "Refuses a folder that holds results of other options.");
  module.def(
      "names_capture", [](const std::string& name) { return names_capture(name); }, nb::arg("name"),
      "Whether a folder or REPO@BRANCH is a capture.");
  module.def("analyze", &analyze, nb::arg("options"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace qkscope::python
