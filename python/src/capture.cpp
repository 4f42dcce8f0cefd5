// Bindings of qkscope/capture.h.
#include "qkscope/capture.h"

#include <tuple>

#include <fmt/core.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "engine.h"
#include "qkscope/experimental/run_advice.h"
#include "qkscope/experimental/text.h"
#include "qkscope/hub.h"
#include "watcher.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

CaptureConfig read_file(const std::string& file, const std::vector<std::string>& overrides) {
  return read_capture_config(file, overrides);
}

CaptureConfig read_text(const std::string& yaml, const std::vector<std::string>& overrides) {
  return parse_capture_config(yaml, overrides);
}

ComputeOptions compute_options(const std::string& device, const std::vector<std::string>& devices,
                               const std::string& dtype, const std::string& device_memory,
                               std::int64_t batch_tokens, bool deterministic) {
  ComputeOptions options{.device = device,
                         .devices = devices,
                         .dtype = {},
                         .device_memory = 0,
                         .batch_tokens = batch_tokens,
                         .deterministic = deterministic};
  if (!dtype.empty()) options.dtype = parse_compute_dtype(dtype, "dtype");
  if (!device_memory.empty()) options.device_memory = parse_bytes(device_memory, "device_memory");
  return options;
}

// Runs a capture. With `shards` > 0, captures every incomplete shard, then merges all shards.
CaptureResult capture(CaptureConfig config, const ComputeOptions& compute, Shard shard,
                      std::int64_t shards, bool overwrite, nb::object progress,
                      std::shared_ptr<PythonEngine> engine) {
  Watcher watcher(std::move(progress));
  if (engine) config.engine = kTransformersEngine;
  const auto result = run_without_gil([&] {
    fetch_capture_inputs(config, {.stop = watcher.stop()});
    const auto plan = make_plan(config, compute, engine);
    const CaptureOptions options{.shard = shard,
                                 .overwrite = overwrite,
                                 .quiet = true,
                                 .stop = watcher.stop(),
                                 .on_batch = [&](const auto& done) { watcher.tell(done); }};
    return shards > 0 ? run_capture_shards(plan, shards, options) : run_capture(plan, options);
  });
  watcher.rethrow();
  return result;
}

// Returns the plan and estimated cost of a run as JSON.
std::string dry_run_json(CaptureConfig config, const ComputeOptions& compute, Shard shard,
                         const std::shared_ptr<PythonEngine>& engine) {
  if (engine) config.engine = kTransformersEngine;
  return run_without_gil([&] {
    fetch_capture_inputs(config, {.weights = false, .quiet = true});
    const auto plan = make_plan(config, compute, engine);
    const auto dry = dry_run(plan, shard);
    return add_advice_to_plan_json(plan_json(plan, dry),
                                   make_run_advice(plan, dry, shard, compute));
  });
}

void bind_results(nb::module_& module) {
  nb::class_<CaptureProgress>(module, "CaptureProgress", "Progress of a capture.")
      .def_ro("examples", &CaptureProgress::examples)
      .def_ro("total", &CaptureProgress::total, "0: unknown.")
      .def_ro("rows", &CaptureProgress::rows, "Rows of all heads.")
      .def_ro("tokens", &CaptureProgress::tokens)
      .def("__repr__", [](const CaptureProgress& p) {
        return fmt::format("CaptureProgress(examples={}, total={}, rows={}, tokens={})", p.examples,
                           p.total, p.rows, p.tokens);
      });
  nb::class_<CaptureResult>(module, "CaptureResult", "Result of a capture.")
      .def_prop_ro(
          "outcome",
          [](const CaptureResult& result) { return std::string(outcome_name(result.outcome)); },
          "'finished', 'already finished', 'part finished' or 'interrupted'.")
      .def_ro("examples", &CaptureResult::examples)
      .def_ro("rows", &CaptureResult::rows, "Rows of all heads.")
      .def_ro("tokens", &CaptureResult::tokens)
      .def_ro("non_finite", &CaptureResult::non_finite,
              "Rows with NaN or infinity, stored with capture.non_finite 'keep'.")
      .def_ro("seconds", &CaptureResult::seconds)
      .def_ro("load_seconds", &CaptureResult::load_seconds, "Time to load the model.")
      .def_ro("forward_seconds", &CaptureResult::forward_seconds)
      .def_ro("input_seconds", &CaptureResult::input_seconds, "Time spent waiting for texts.")
      .def_ro("assembly_seconds", &CaptureResult::assembly_seconds,
              "Time to write the final files.")
      .def("__repr__", [](const CaptureResult& r) {
        return fmt::format("CaptureResult('{}', examples={}, rows={}, tokens={})",
                           outcome_name(r.outcome), r.examples, r.rows, r.tokens);
      });
}

}  // namespace

void bind_capture(nb::module_& module) {
  bind_results(module);
  const nb::class_<ComputeOptions> handed_on(module, "ComputeOptions");  // opaque to Python
  module.def("compute_options", &compute_options, nb::arg("device"), nb::arg("devices"),
             nb::arg("dtype"), nb::arg("device_memory"), nb::arg("batch_tokens"),
             nb::arg("deterministic"));
  nb::class_<CaptureConfig>(module, "CaptureConfig")
      .def_prop_ro("data_root", [](const CaptureConfig& config) { return config.output.data_root; })
      .def_prop_rw(
          "max_samples",
          [](const CaptureConfig& config) { return config.dataset.max_samples.value_or(0); },
          [](CaptureConfig& config, std::int64_t count) { config.dataset.max_samples = count; },
          "0: no limit.")
      .def_prop_rw(
          "number_rows", [](const CaptureConfig& config) { return config.dataset.number_rows; },
          [](CaptureConfig& config, bool by_row) { config.dataset.number_rows = by_row; })
      .def_prop_rw(
          "keep_non_finite",
          [](const CaptureConfig& config) { return config.capture.keep_non_finite; },
          [](CaptureConfig& config, bool keep) { config.capture.keep_non_finite = keep; })
      .def_prop_ro(
          "publication",
          [](const CaptureConfig& config) {
            const auto& output = config.output;
            return std::tuple(output.hf_repo_id.value_or(""), output.hf_branch.value_or(""),
                              output.private_repo);
          },
          "repository (\"\": none), branch, whether it is private");
  module.def(
      "dry_run_capture",
      [](const CaptureConfig& config, const ComputeOptions& compute,
         std::pair<std::int64_t, std::int64_t> shard, std::shared_ptr<PythonEngine> engine) {
        return dry_run_json(config, compute, {shard.first, shard.second}, engine);
      },
      nb::arg("config"), nb::arg("compute"), nb::arg("shard"), nb::arg("engine").none());
  module.def("read_capture_config", &read_file, nb::arg("file"), nb::arg("overrides"));
  module.def("parse_capture_config", &read_text, nb::arg("yaml"), nb::arg("overrides"));
  module.def(
      "capture",
      [](const CaptureConfig& config, const ComputeOptions& compute,
         std::pair<std::int64_t, std::int64_t> shard, std::int64_t shards, bool overwrite,
         nb::object progress, std::shared_ptr<PythonEngine> engine) {
        return capture(config, compute, {shard.first, shard.second}, shards, overwrite,
                       std::move(progress), std::move(engine));
      },
      nb::arg("config"), nb::arg("compute"), nb::arg("shard"), nb::arg("shards"),
      nb::arg("overwrite"), nb::arg("progress").none(), nb::arg("engine").none());
  module.def(
      "merge_capture", [](const std::string& data_root) { return merge_capture(data_root, true); },
      nb::arg("data_root"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace qkscope::python
