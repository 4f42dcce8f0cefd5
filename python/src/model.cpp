// qkscope/model.h and qkscope/forward.h
#include "qkscope/model.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bind.h"
#include "device_array.h"
#include "hook_runner.h"
#include "loaded_model.h"
#include "qkscope/forward.h"
#include "qkscope/hub.h"

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
  names.reserve(points.size());
  for (const auto point : points) names.push_back(hook_name(point));
  return names;
}

void check_run(const Model& model, const Batch& batch, const std::vector<HookPoint>& points,
               const Rows& rows) {
  const auto queries = rows.empty() ? batch.rows() : static_cast<std::int64_t>(rows.size());
  check_score_size(model.config(), points, queries, batch.longest(), "positions=");
}

LoadedModel load(const std::string& folder, const std::string& overrides, bool fold,
                 const std::string& device, const std::string& dtype) {
  ModelOptions options;
  options.config_overrides = overrides;
  options.fold_norms = fold;
  options.device = device;
  options.dtype = dtype;
  auto model = Model::load(folder, options);
  const bool on_gpu = model.device().kind == Device::Kind::cuda;
  return {std::move(model), on_gpu};
}

// What a collector of this kind has after a pass.
template <typename Kind>
Kind collect(LoadedModel& model, const Tokens& tokens, const std::vector<std::string>& names,
             const Rows& rows) {
  const auto batch = batch_of(tokens);
  const auto points = match_hooks(model.model.config(), names);
  Kind collector(points, rows);
  const nb::gil_scoped_release other_threads_may_run;
  check_run(model.model, batch, points, rows);
  model.model.run(batch, collector);
  return collector;
}

nb::dict record(LoadedModel& model, const Tokens& tokens, const std::vector<std::string>& names,
                const Rows& rows) {
  nb::dict arrays;
  const auto add = [&](HookPoint point, auto array) {
    arrays[hook_name(point).c_str()] = nb::cast(std::move(array));
  };
  const auto add_kept = [&](Collector& collector) {
    for (auto& [point, activation] : collector.kept()) add(point, to_array(std::move(activation)));
  };
  if (!model.keeps_on_device) {
    auto collector = collect<InterruptibleCollector>(model, tokens, names, rows);
    add_kept(collector);
    return arrays;
  }
  auto collector = collect<DeviceCollector>(model, tokens, names, rows);
  for (const auto& [point, activation] : collector.copies()) add(point, DeviceArray{activation});
  add_kept(collector);
  return arrays;
}

void run(LoadedModel& model, const Tokens& tokens, const std::vector<std::string>& names,
         const Rows& score_rows, const nb::callable& call) {
  const auto batch = batch_of(tokens);
  const auto points = match_hooks(model.model.config(), names);
  HookRunner runner(points, score_rows, call, model.keeps_on_device);
  const nb::gil_scoped_release other_threads_may_run;
  check_run(model.model, batch, points, score_rows);
  model.model.run(batch, runner);
}

}  // namespace

void bind_model(nb::module_& module) {
  module.def(
      "fetch_checkpoint",
      [](const std::string& name, const std::string& revision) {
        return fetch_checkpoint(name, revision);
      },
      nb::arg("name"), nb::arg("revision"), nb::call_guard<nb::gil_scoped_release>());
  nb::class_<LoadedModel>(module, "Model")
      .def_prop_ro(
          "config", [](const LoadedModel& m) -> const auto& { return m.model.config(); })
      .def_prop_ro(
          "weights", [](const LoadedModel& m) -> const auto& { return m.model.weights(); })
      .def_prop_ro("device", [](const LoadedModel& m) { return device_name(m.model.device()); })
      .def_prop_ro("dtype", [](const LoadedModel& m) { return dtype_name(m.model.dtype()); })
      .def_rw("keeps_on_device", &LoadedModel::keeps_on_device,
              "Activations are given as DeviceArray, where they were computed, and not as "
              "NumPy arrays; true on CUDA.")
      .def("hook_names",
           [](const LoadedModel& m) { return names_of(hook_points(m.model.config())); })
      .def(
          "match_hooks",
          [](const LoadedModel& m, const std::vector<std::string>& patterns) {
            return names_of(match_hooks(m.model.config(), patterns));
          },
          nb::arg("patterns"))
      .def("record", &record, nb::arg("tokens"), nb::arg("names"), nb::arg("rows"),
           "Runs tokens [sequence, position] and keeps what the points show, by name.")
      .def("run", &run, nb::arg("tokens"), nb::arg("names"), nb::arg("score_rows"), nb::arg("call"),
           "Runs tokens and calls call(number of the point, array) at each; what the array holds "
           "then goes on.");
  module.def(
      "choose_device", [](const std::string& wanted) { return device_name(choose_device(wanted)); },
      nb::arg("wanted"), "The device that auto, cpu, cuda or cuda:N means here.");
  module.def("load_model", &load, nb::arg("folder"), nb::arg("overrides"), nb::arg("fold_norms"),
             nb::arg("device"), nb::arg("dtype"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace qkscope::python
