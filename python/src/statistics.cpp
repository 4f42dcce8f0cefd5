// Python bindings for qkscope/statistics.h and qkscope/experimental/exports.h.
#include "qkscope/statistics.h"

#include <fmt/core.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "engine.h"
#include "qkscope/experimental/exports.h"
#include "qkscope/experimental/run_advice.h"
#include "qkscope/hub.h"
#include "watcher.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

using Pair = std::pair<std::int64_t, std::int64_t>;

using Engine = std::shared_ptr<PythonEngine>;

StatsResult stats(StatsConfig config, const ComputeOptions& compute, Pair shard, bool overwrite,
                  nb::object progress, const Engine& engine) {
  Watcher watcher(std::move(progress));
  if (engine) config.run.engine = kTransformersEngine;
  const auto result = run_without_gil([&] {
    fetch_capture_inputs(config.run, {.quiet = true, .stop = watcher.stop()});
    const auto plan = make_stats_plan(config, compute, engine);
    return run_stats(plan, {.shard = {shard.first, shard.second},
                            .overwrite = overwrite,
                            .quiet = true,
                            .stop = watcher.stop(),
                            .on_batch = [&](const auto& done) { watcher.tell(done); }});
  });
  watcher.rethrow();
  return result;
}

// Returns the plan and estimated cost of a run as JSON.
std::string dry_run_json(StatsConfig config, const ComputeOptions& compute, Pair shard,
                         const Engine& engine) {
  if (engine) config.run.engine = kTransformersEngine;
  return run_without_gil([&] {
    fetch_capture_inputs(config.run, {.weights = false, .quiet = true});
    const auto plan = make_stats_plan(config, compute, engine);
    const auto dry = dry_run_stats(plan, {shard.first, shard.second});
    return add_advice_to_plan_json(plan_json(plan, dry), make_run_advice(plan, dry, compute));
  });
}

void bind_results(nb::module_& module) {
  nb::class_<StatsProgress>(module, "StatsProgress", "Progress of statistics.")
      .def_ro("examples", &StatsProgress::examples)
      .def_ro("total", &StatsProgress::total, "0: unknown.")
      .def_ro("tokens", &StatsProgress::tokens)
      .def("__repr__", [](const StatsProgress& p) {
        return fmt::format("StatsProgress(examples={}, total={}, tokens={})", p.examples, p.total,
                           p.tokens);
      });
  nb::class_<StatsResult>(module, "StatsResult", "Result of a run of statistics.")
      .def_prop_ro(
          "outcome",
          [](const StatsResult& result) { return std::string(outcome_name(result.outcome)); },
          "'finished', 'already finished', 'part finished' or 'interrupted'.")
      .def_ro("examples", &StatsResult::examples)
      .def_ro("tokens", &StatsResult::tokens)
      .def_ro("seconds", &StatsResult::seconds)
      .def_ro("load_seconds", &StatsResult::load_seconds, "Time to load the model.")
      .def_ro("forward_seconds", &StatsResult::forward_seconds)
      .def("__repr__", [](const StatsResult& r) {
        return fmt::format("StatsResult('{}', examples={}, tokens={})", outcome_name(r.outcome),
                           r.examples, r.tokens);
      });
}

void bind_export(nb::module_& module) {
  nb::class_<ExportOptions>(module, "ExportOptions")
      .def(nb::init<>())
      .def_rw("statistics", &ExportOptions::statistics)
      .def_rw("to", &ExportOptions::to)
      .def_rw("out", &ExportOptions::out)
      .def_rw("overwrite", &ExportOptions::overwrite)
      .def_rw("set", &ExportOptions::set)
      .def_rw("kvpress_name", &ExportOptions::kvpress_name)
      .def_rw("checkpoint", &ExportOptions::checkpoint)
      .def_rw("strategy", &ExportOptions::strategy)
      .def_rw("margin", &ExportOptions::margin)
      .def_rw("queries", &ExportOptions::queries);
  module.def("export_names", &export_names);
  module.def(
      "export_statistics", [](const ExportOptions& options) { return export_statistics(options); },
      nb::arg("options"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

void bind_statistics(nb::module_& module) {
  bind_results(module);
  nb::class_<StatsConfig>(module, "StatsConfig")
      .def_prop_ro("data_root",
                   [](const StatsConfig& config) { return config.run.output.data_root; })
      .def_prop_rw(
          "max_samples",
          [](const StatsConfig& config) { return config.run.dataset.max_samples.value_or(0); },
          [](StatsConfig& config, std::int64_t count) { config.run.dataset.max_samples = count; },
          "0: no limit.")
      .def_prop_rw(
          "number_rows", [](const StatsConfig& config) { return config.run.dataset.number_rows; },
          [](StatsConfig& config, bool by_row) { config.run.dataset.number_rows = by_row; });
  module.def(
      "read_stats_config",
      [](const std::string& file, const std::vector<std::string>& overrides) {
        return read_stats_config(file, overrides);
      },
      nb::arg("file"), nb::arg("overrides"));
  module.def(
      "parse_stats_config",
      [](const std::string& yaml, const std::vector<std::string>& overrides) {
        return parse_stats_config(yaml, overrides);
      },
      nb::arg("yaml"), nb::arg("overrides"));
  module.def("stats", &stats, nb::arg("config"), nb::arg("compute"), nb::arg("shard"),
             nb::arg("overwrite"), nb::arg("progress").none(), nb::arg("engine").none());
  module.def("dry_run_stats", &dry_run_json, nb::arg("config"), nb::arg("compute"),
             nb::arg("shard"), nb::arg("engine").none());
  module.def("holds_statistics", &holds_statistics, nb::arg("folder"));
  module.def(
      "merge_stats_shards", [](const std::string& folder) { return merge_stats_shards(folder); },
      nb::arg("folder"), nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "merge_stats_folders",
      [](const std::vector<std::string>& folders, const std::string& out) {
        return merge_stats_folders(folders, out);
      },
      nb::arg("folders"), nb::arg("out"), nb::call_guard<nb::gil_scoped_release>());
  bind_export(module);
}

}  // namespace qkscope::python
