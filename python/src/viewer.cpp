// Python bindings for qkscope/experimental/viewer.h.
#include "qkscope/experimental/viewer.h"

#include <memory>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "loaded_model.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

using Heads = std::vector<std::pair<std::int64_t, std::int64_t>>;

void make_viewer(Viewer* self, std::vector<std::int32_t> ids, const std::string& title,
                 const std::string& results, const Heads& heads, std::int64_t query,
                 std::int64_t memory, int runs) {
  ViewerOptions options;
  options.ids = std::move(ids);
  options.title = title;
  options.results = results;
  for (const auto& [layer, head] : heads) options.heads.push_back({layer, head});
  options.query = query;
  options.memory = memory;
  options.runs = runs;
  new (self) Viewer(std::move(options));
}

// Shares a model with Python. The deleter acquires the GIL, which the last owner may not hold.
std::shared_ptr<const Model> share_model(const nb::typed<nb::object, LoadedModel>& model) {
  const auto* engine = &nb::cast<LoadedModel&>(model).model;
  return {engine, [owner = nb::object(model)](const Model*) mutable {
            const nb::gil_scoped_acquire python;
            owner.reset();
          }};
}

}  // namespace

void bind_viewer(nb::module_& module) {
  nb::class_<Viewer>(module, "Viewer")
      .def("__init__", &make_viewer, nb::arg("ids"), nb::arg("title"), nb::arg("results"),
           nb::arg("heads"), nb::arg("query"), nb::arg("memory"), nb::arg("runs"))
      .def(
          "add_run",
          [](Viewer& viewer, const std::string& name,
             const nb::typed<nb::object, LoadedModel>& model) {
            auto shared = share_model(model);
            const nb::gil_scoped_release other_threads_may_run;
            viewer.add_run(name, std::move(shared));
          },
          nb::arg("name"), nb::arg("model"))
      .def(
          "serve",
          [](Viewer& viewer, const std::string& frame_ancestors) {
            return viewer.serve({.frame_ancestors = frame_ancestors});
          },
          nb::arg("frame_ancestors"), nb::call_guard<nb::gil_scoped_release>())
      .def("stop", &Viewer::stop, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "export_page",
          [](Viewer& viewer, const std::vector<std::int64_t>& queries, std::int64_t budget) {
            return viewer.export_page({queries, budget});
          },
          nb::arg("queries"), nb::arg("budget"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace qkscope::python
