// qkscope/analysis.h
#include "qkscope/analysis.h"

#include <tuple>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "tables.h"

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

// {table: [(column, type, values)]}
nb::typed<nb::dict, nb::str, Columns> tables_of(nb::pointer_and_handle<Analysis> analysis) {
  nb::dict tables;
  for (const auto& entry : analysis.p->results.tables)
    tables[entry.name.c_str()] = columns_of(entry.table, analysis.h);
  return tables;
}

// (layer, head, what is wrong)
std::vector<std::tuple<int, int, std::string>> failures_of(const Analysis& analysis) {
  std::vector<std::tuple<int, int, std::string>> failures;
  for (const auto& head : analysis.run.heads)
    if (!head.error.empty()) failures.emplace_back(head.query.layer, head.query.head, head.error);
  return failures;
}

// (layer, head)
using Pairs = std::vector<std::pair<int, int>>;

std::vector<HeadId> query_heads(const Pairs& pairs) {
  std::vector<HeadId> heads;
  for (const auto& [layer, head] : pairs) heads.push_back({layer, head, HeadKind::query});
  return heads;
}

void bind_parts(nb::module_& module) {
  using Separation = RotationOptions::Separation;
  nb::enum_<Separation>(module, "Separation")
      .value("mean", Separation::mean)
      .value("eigen", Separation::eigen)
      .value("eigen_then_project", Separation::eigen_then_project);
  using Kind = PlasticityOptions::QueryModelKind;
  nb::enum_<Kind>(module, "QueryModel")
      .value("local", Kind::local)
      .value("bin", Kind::bin)
      .value("bucket", Kind::bucket)
      .value("linear", Kind::linear);
  using Covariance = PlasticityOptions::Covariance;
  nb::enum_<Covariance>(module, "Covariance")
      .value("diagonal", Covariance::diagonal)
      .value("full", Covariance::full);
  using Fifths = PlasticityOptions::Fifths;
  nb::enum_<Fifths>(module, "Fifths")
      .value("range", Fifths::range)
      .value("context", Fifths::context);
  nb::class_<PcaOptions>(module, "PcaOptions")
      .def_rw("components", &PcaOptions::components)
      .def_rw("separate_components", &PcaOptions::separate_components);
  nb::class_<TaxonomyOptions>(module, "TaxonomyOptions")
      .def_rw("high", &TaxonomyOptions::high)
      .def_rw("low", &TaxonomyOptions::low);
  nb::class_<RotationOptions>(module, "RotationOptions")
      .def_rw("separation", &RotationOptions::separation)
      .def_rw("null_draws", &RotationOptions::null_draws)
      .def_rw("pairs", &RotationOptions::pairs)
      .def_rw("active_angle_r", &RotationOptions::active_angle_r)
      .def_rw("max_omega", &RotationOptions::max_omega);
  nb::class_<PlasticityOptions>(module, "PlasticityOptions")
      .def_ro_static("BUCKETS", &PlasticityOptions::kBuckets)
      .def_ro_static("MOST_BINS", &PlasticityOptions::kMostBins)
      .def_rw("profile_model", &PlasticityOptions::profile_model)
      .def_rw("covariance", &PlasticityOptions::covariance)
      .def_rw("free_keys", &PlasticityOptions::free_keys)
      .def_rw("max_pairs", &PlasticityOptions::max_pairs)
      .def_rw("p_alpha", &PlasticityOptions::p_alpha)
      .def_rw("heatmap_bins", &PlasticityOptions::heatmap_bins)
      .def_rw("profile_bins", &PlasticityOptions::profile_bins)
      .def_rw("fifths", &PlasticityOptions::fifths)
      .def_rw("length_bins", &PlasticityOptions::length_bins);
}

}  // namespace

void bind_analysis(nb::module_& module) {
  bind_parts(module);
  nb::class_<AnalyzeOptions>(module, "AnalyzeOptions")
      .def(nb::init<>())
      .def_rw("data_root", &AnalyzeOptions::data_root)
      .def_rw("label", &AnalyzeOptions::label)
      .def_rw("pre_rope", &AnalyzeOptions::pre_rope)
      .def_rw("keys", &AnalyzeOptions::keys)
      .def_rw("pca", &AnalyzeOptions::pca)
      .def_rw("rotation", &AnalyzeOptions::rotation)
      .def_rw("plasticity", &AnalyzeOptions::plasticity)
      .def_rw("pca_options", &AnalyzeOptions::pca_options)
      .def_rw("taxonomy", &AnalyzeOptions::taxonomy)
      .def_rw("rotation_options", &AnalyzeOptions::rotation_options)
      .def_rw("plasticity_options", &AnalyzeOptions::plasticity_options)
      .def_rw("model", &AnalyzeOptions::model)
      .def("set_head_counts",
           [](AnalyzeOptions& options, int query_heads, int key_heads) {
             options.head_counts = HeadCounts{query_heads, key_heads};
           })
      .def_rw("nope_layers", &AnalyzeOptions::nope_layers)
      .def_rw("max_tokens", &AnalyzeOptions::max_tokens)
      .def_rw("seed", &AnalyzeOptions::seed)
      .def_rw("layers", &AnalyzeOptions::layers)
      .def("set_heads",
           [](AnalyzeOptions& options, const Pairs& heads) { options.heads = query_heads(heads); })
      .def_rw("errors", &AnalyzeOptions::errors)
      .def_rw("scatter", &AnalyzeOptions::scatter)
      .def("set_planes_of", [](AnalyzeOptions& options,
                               const Pairs& heads) { options.planes_of = query_heads(heads); })
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
  module.def(
      "names_capture", [](const std::string& name) { return names_capture(name); }, nb::arg("name"),
      "Whether a folder or REPO@BRANCH is a capture.");
  module.def("analyze", &analyze, nb::arg("options"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace qkscope::python
