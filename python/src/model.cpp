// Python bindings for qkscope/model.h and qkscope/forward.h.
#include "qkscope/model.h"

#include <optional>

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
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

// Token ids: an array (sequences, positions), or a list of arrays of any lengths.
using Ids = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Tokens = std::vector<Ids>;
using Rows = std::vector<std::int64_t>;
// Residual stream, shape (rows of the batch, d_model), on the host or a GPU.
using Residual = std::optional<nb::ndarray<const float, nb::ndim<2>, nb::c_contig>>;

Batch batch_of(const Tokens& tokens) {
  Batch batch;
  for (const auto& ids : tokens) batch.add({ids.data(), ids.size()});
  return batch;
}

RunOptions start_from(const Residual& residual, std::int64_t layer) {
  RunOptions options{.residual = {}, .start_at_layer = layer};
  if (!residual) return options;
  const bool on_gpu = residual->device_type() == nb::device::cuda::value;
  const Device device{on_gpu ? Device::Kind::cuda : Device::Kind::cpu, residual->device_id()};
  options.residual = {reinterpret_cast<const std::byte*>(residual->data()),
                      DType::f32,
                      {static_cast<std::int64_t>(residual->shape(0)),
                       static_cast<std::int64_t>(residual->shape(1))},
                      device};
  return options;
}

std::vector<std::string> names_of(const std::vector<HookPoint>& points) {
  std::vector<std::string> names;
  names.reserve(points.size());
  for (const auto point : points) names.push_back(hook_name(point));
  return names;
}

// Throws an error if the attention scores need too much memory. The message suggests the Python
// argument named by `how`, which limits the query positions.
void check_run(const Model& model, const Batch& batch, const std::vector<HookPoint>& points,
               const Rows& rows, const char* how) {
  const auto queries = rows.empty() ? batch.rows() : static_cast<std::int64_t>(rows.size());
  check_score_size(model.config(), points, queries, batch.longest(), how);
}

// Optional transformations of the weights; see ModelOptions.
struct Rewriting {
  bool fold_norms = false;
  bool center_writing_weights = false;
  bool center_unembed = false;
  bool fold_value_biases = false;
};

LoadedModel load(const std::string& folder, const std::string& overrides,
                 const Rewriting& rewriting, const std::string& device, const std::string& dtype) {
  ModelOptions options;
  options.config_overrides = overrides;
  options.fold_norms = rewriting.fold_norms;
  options.center_writing_weights = rewriting.center_writing_weights;
  options.center_unembed = rewriting.center_unembed;
  options.fold_value_biases = rewriting.fold_value_biases;
  options.device = device;
  options.dtype = dtype;
  auto model = Model::load(folder, options);
  const bool on_gpu = model.device().kind == Device::Kind::cuda;
  return {std::move(model), on_gpu};
}

// Runs a forward pass and returns the collector with the recorded activations.
template <typename Kind>
Kind collect(LoadedModel& model, const Tokens& tokens, const std::vector<std::string>& names,
             const Rows& rows, const RunOptions& options) {
  const auto batch = batch_of(tokens);
  const auto points = match_hooks(model.model.config(), names);
  Kind collector(points, rows);
  const nb::gil_scoped_release other_threads_may_run;
  check_run(model.model, batch, points, rows, "positions=");
  model.model.run(batch, collector, options);
  return collector;
}

nb::typed<nb::dict, nb::str, nb::any> record(LoadedModel& model, const Tokens& tokens,
                                             const std::vector<std::string>& names,
                                             const Rows& rows, const Residual& residual,
                                             std::int64_t start_at_layer) {
  const auto options = start_from(residual, start_at_layer);
  nb::dict arrays;
  const auto add = [&](HookPoint point, auto array) {
    arrays[hook_name(point).c_str()] = nb::cast(std::move(array));
  };
  const auto add_kept = [&](Collector& collector) {
    for (auto& [point, activation] : collector.kept()) add(point, to_array(std::move(activation)));
  };
  if (!model.keeps_on_device) {
    auto collector = collect<InterruptibleCollector>(model, tokens, names, rows, options);
    add_kept(collector);
    return arrays;
  }
  auto collector = collect<DeviceCollector>(model, tokens, names, rows, options);
  for (const auto& [point, activation] : collector.copies()) add(point, DeviceArray{activation});
  add_kept(collector);
  return arrays;
}

void run(LoadedModel& model, const Tokens& tokens, const std::vector<std::string>& names,
         const Rows& score_rows, const Rows& logit_rows,
         const nb::typed<nb::callable, void(int, nb::any)>& call, const Residual& residual,
         std::int64_t start_at_layer) {
  const auto batch = batch_of(tokens);
  const auto points = match_hooks(model.model.config(), names);
  const auto options = start_from(residual, start_at_layer);
  HookRunner runner({points, score_rows, logit_rows}, call, model.keeps_on_device);
  const nb::gil_scoped_release other_threads_may_run;
  check_run(model.model, batch, points, score_rows, "queries=");
  model.model.run(batch, runner, options);
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
              "Whether activations are DeviceArray instead of NumPy arrays; true on CUDA.")
      .def("hook_names",
           [](const LoadedModel& m) { return names_of(hook_points(m.model.config())); })
      .def("derived_hook_names",
           [](const LoadedModel& m) { return names_of(derived_hook_points(m.model.config())); })
      .def(
          "match_hooks",
          [](const LoadedModel& m, const std::vector<std::string>& patterns) {
            return names_of(match_hooks(m.model.config(), patterns));
          },
          nb::arg("patterns"))
      .def("record", &record, nb::arg("tokens"), nb::arg("names"), nb::arg("rows"),
           nb::arg("residual") = nb::none(), nb::arg("start_at_layer") = 0,
           "Runs tokens, int32 [sequence, position] or a list of [position] of any lengths, and "
           "returns the activations of the hook points at the rows, by name. With a residual "
           "stream [row, d_model] the pass starts from it at a layer and ignores the tokens.")
      .def("run", &run, nb::arg("tokens"), nb::arg("names"), nb::arg("score_rows"),
           nb::arg("logit_rows"), nb::arg("call"), nb::arg("residual") = nb::none(),
           nb::arg("start_at_layer") = 0,
           "Runs tokens and calls call(hook point index, array) at each hook point; the array "
           "after the call replaces the activation. Only score_rows of scores and patterns and "
           "logit_rows of logits are computed (empty: all).");
  module.def(
      "choose_device", [](const std::string& wanted) { return device_name(choose_device(wanted)); },
      nb::arg("wanted"),
      "Returns the device that auto, cpu, cuda or cuda:N selects on this machine.");
  nb::class_<Rewriting>(module, "Rewriting", "How weights are rewritten when a model is loaded.")
      .def(nb::init<>())
      .def_rw("fold_norms", &Rewriting::fold_norms)
      .def_rw("center_writing_weights", &Rewriting::center_writing_weights)
      .def_rw("center_unembed", &Rewriting::center_unembed)
      .def_rw("fold_value_biases", &Rewriting::fold_value_biases);
  module.def("load_model", &load, nb::arg("folder"), nb::arg("overrides"), nb::arg("rewriting"),
             nb::arg("device"), nb::arg("dtype"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace qkscope::python
