// model/model.h, forward/forward.h and forward/hooks.h
#include "model/model.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bind.h"
#include "core/json.h"
#include "forward/forward.h"
#include "hook_runner.h"
#include "hub/fetch.h"
#include "model/fold_norms.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

// [sequence, position]
using Tokens = nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Rows = std::vector<std::int64_t>;

Batch batch_of(const Tokens& tokens) {
  Batch batch;
  for (std::size_t i = 0; i < tokens.shape(0); ++i)
    batch.add({tokens.data() + i * tokens.shape(1), tokens.shape(1)});
  return batch;
}

std::vector<std::string> names_of(const std::vector<HookPoint>& points) {
  std::vector<std::string> names;
  for (const auto point : points) names.push_back(hook_name(point));
  return names;
}

void check_run(const Model& model, const Batch& batch, const std::vector<HookPoint>& points,
               const Rows& rows) {
  check_batch(batch, model.config);
  const auto queries = rows.empty() ? batch.rows() : static_cast<std::int64_t>(rows.size());
  check_score_size(model.config, points, queries, batch.longest(), "positions=");
}

Model load(const std::string& folder, const std::string& overrides, bool fold) {
  auto model = load_model(folder, parse_json(overrides, "config_overrides"));
  if (fold) fold_norms(model);
  return model;
}

std::vector<std::pair<std::string, Array>> record(const Model& model, const Tokens& tokens,
                                                  const std::vector<std::string>& names,
                                                  const Rows& rows) {
  const auto batch = batch_of(tokens);
  const auto points = match_hooks(model.config, names);
  InterruptibleCollector collector(points, rows);
  {
    const nb::gil_scoped_release other_threads_may_run;
    check_run(model, batch, points, rows);
    forward(model, batch, collector);
  }
  std::vector<std::pair<std::string, Array>> arrays;
  for (auto& [point, activation] : collector.kept())
    arrays.emplace_back(hook_name(point), to_array(std::move(activation)));
  return arrays;
}

void run(const Model& model, const Tokens& tokens, const std::vector<std::string>& names,
         const Rows& score_rows, const nb::callable& call) {
  const auto batch = batch_of(tokens);
  const auto points = match_hooks(model.config, names);
  HookRunner runner(points, score_rows, call);
  const nb::gil_scoped_release other_threads_may_run;
  check_run(model, batch, points, score_rows);
  forward(model, batch, runner);
}

}  // namespace

void bind_model(nb::module_& module) {
  module.def(
      "fetch_checkpoint",
      [](const std::string& name, const std::string& revision) {
        return fetch_checkpoint(name, revision);
      },
      nb::arg("name"), nb::arg("revision"), nb::call_guard<nb::gil_scoped_release>());
  nb::class_<Model>(module, "Model")
      .def_ro("config", &Model::config)
      .def_ro("weights", &Model::weights)
      .def("hook_names", [](const Model& model) { return names_of(hook_points(model.config)); })
      .def(
          "match_hooks",
          [](const Model& model, const std::vector<std::string>& patterns) {
            return names_of(match_hooks(model.config, patterns));
          },
          nb::arg("patterns"))
      .def("record", &record, nb::arg("tokens"), nb::arg("names"), nb::arg("rows"),
           "Runs tokens [sequence, position] and keeps what the points show, in order of firing.")
      .def("run", &run, nb::arg("tokens"), nb::arg("names"), nb::arg("score_rows"), nb::arg("call"),
           "Runs tokens and calls call(number of the point, array) at each; what the array holds "
           "then goes on.");
  module.def("load_model", &load, nb::arg("folder"), nb::arg("overrides"), nb::arg("fold_norms"),
             nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace qkscope::python
