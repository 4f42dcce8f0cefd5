// Python bindings for qkscope/experimental/study.h and for the uploads of qkscope/hub.h.
#include <algorithm>
#include <chrono>
#include <future>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "qkscope/experimental/study.h"
#include "qkscope/hub.h"
#include "tables.h"
#include "watcher.h"

namespace qkscope::python {
namespace nb = nanobind;
namespace {

constexpr std::chrono::milliseconds kPollInterval(200);  // for Ctrl-C and finished runs

const char* outcome_word(RunReport::Outcome outcome) {
  switch (outcome) {
    case RunReport::Outcome::done:
      return "done";
    case RunReport::Outcome::already_done:
      return "already done";
    case RunReport::Outcome::failed:
      return "failed";
    case RunReport::Outcome::elsewhere:
      return "elsewhere";
    case RunReport::Outcome::unfinished:
      return "unfinished";
    case RunReport::Outcome::interrupted:
      break;
  }
  return "interrupted";
}

const char* publication_word(RunReport::Publication publication) {
  switch (publication) {
    case RunReport::Publication::published:
      return "published";
    case RunReport::Publication::already_published:
      return "already published";
    case RunReport::Publication::failed:
      return "failed";
    case RunReport::Publication::none:
      break;
  }
  return "";
}

// Returns a table with the columns label, outcome, error, publication and publish_error.
Table report_table(const std::vector<RunReport>& reports) {
  Table table;
  for (const char* name : {"label", "outcome", "error", "publication", "publish_error"})
    table.column(name, Table::Type::text);
  for (const auto& report : reports)
    table.add({report.label, std::string(outcome_word(report.outcome)), report.error,
               std::string(publication_word(report.publication)), report.publish_error});
  return table;
}

Table plan_table(const std::vector<PlannedRun>& runs) {
  using Type = Table::Type;
  Table table;
  table.column("label", Type::text)
      .column("captured", Type::boolean)
      .column("analysed", Type::boolean)
      .column("published", Type::boolean);
  for (const char* name : {"examples", "tokens", "files", "rows", "bytes"})
    table.column(name, Type::integer);
  table.column("publish", Type::text).column("error", Type::text);
  for (const auto& run : runs) {
    std::vector<Table::Cell> cells = {run.label, std::int64_t{run.captured},
                                      std::int64_t{run.analysed}, std::int64_t{run.published}};
    const auto capture = run.capture.value_or(PlannedRun::Capture());
    for (const auto number :
         {capture.examples, capture.tokens, capture.files, capture.rows, capture.bytes})
      cells.emplace_back(run.capture ? number : Table::kNoInteger);
    cells.emplace_back(run.publish);
    cells.emplace_back(run.error);
    table.add(std::move(cells));
  }
  return table;
}

Table overview_table(const std::vector<OverviewRow>& rows) {
  using Type = Table::Type;
  Table table;
  table.column("label", Type::text)
      .column("phase", Type::text)
      .column("order", Type::integer)
      .column("layers", Type::text)
      .column("heads", Type::integer);
  for (const auto& name : overview_measures()) table.column(name, Type::real);
  for (const auto& row : rows) {
    std::vector<Table::Cell> cells = {row.label, row.phase, row.order, row.layers, row.heads};
    for (const auto& name : overview_measures()) cells.emplace_back(row.value(name));
    table.add(std::move(cells));
  }
  return table;
}

// Runs the sweep on another thread. This thread reports the number of finished runs to Python and
// handles Ctrl-C.
HeldTable run_sweep(const Sweep& sweep, SweepOptions options, nb::object progress) {
  Watcher watcher(std::move(progress));
  options.stop = watcher.stop();
  options.quiet = true;
  std::vector<RunReport> reports;
  {
    const nb::gil_scoped_release other_threads_may_run;
    auto running = std::async(std::launch::async, [&] { return sweep.run(options); });
    while (running.wait_for(kPollInterval) != std::future_status::ready) {
      const auto runs = sweep.runs();
      const auto done = std::count_if(runs.begin(), runs.end(), [](const RunEntry& run) {
        return run.state != RunState::pending;
      });
      watcher.tell(std::int64_t{done}, static_cast<std::int64_t>(runs.size()));
    }
    reports = running.get();
  }
  watcher.rethrow();
  return {report_table(reports)};
}

void bind_sweep(nb::module_& module) {
  nb::class_<SweepOptions>(module, "SweepOptions")
      .def(nb::init<>())
      .def_rw("only", &SweepOptions::only)
      .def("set_shard",
           [](SweepOptions& options, std::int64_t index, std::int64_t count) {
             options.shard = {index, count};
           })
      .def("set_texts",
           [](SweepOptions& options, std::int64_t index, std::int64_t count) {
             options.texts = {index, count};
           })
      .def("set_part",
           [](SweepOptions& options, const std::string& name) {
             options.part = parse_sweep_part(name, "part");
           })
      .def_rw("jobs", &SweepOptions::jobs)
      .def_rw("overwrite", &SweepOptions::overwrite)
      .def_rw("evict", &SweepOptions::evict)
      .def_rw("publish", &SweepOptions::publish);
  nb::class_<Sweep>(module, "Sweep")
      .def_prop_ro("name", &Sweep::name)
      .def_prop_ro("folder", &Sweep::folder)
      .def(
          "plan",
          [](const Sweep& sweep, const SweepOptions& options) {
            return HeldTable{plan_table(sweep.plan(options))};
          },
          nb::arg("options"), nb::call_guard<nb::gil_scoped_release>())
      .def("run", &run_sweep, nb::arg("options"), nb::arg("progress").none())
      .def(
          "put_figures", [](const Sweep& sweep) { return sweep.put_figures(true); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("overview",
           [](const Sweep& sweep) { return HeldTable{overview_table(sweep.overview())}; });
  module.def(
      "read_sweep",
      [](const std::string& file, const std::vector<std::string>& overrides,
         const std::string& data_folder, const ComputeOptions& compute, std::int64_t every,
         std::int64_t log, const std::string& out) {
        SweepSource source{file, overrides, data_folder, compute};
        source.every = every;
        source.log = log;
        return Sweep::read(source, out);
      },
      nb::arg("file"), nb::arg("overrides"), nb::arg("data_folder"), nb::arg("compute"),
      nb::arg("every"), nb::arg("log"), nb::arg("out"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

void bind_studies(nb::module_& module) {
  bind_sweep(module);
  module.def(
      "compare_with_published",
      [](const std::string& results, const std::string& published,
         const std::vector<std::string>& only, const std::string& as, bool every_source) {
        CompareOptions options{published, only, as, every_source};
        return HeldTable{compare_with_published(results, options)};
      },
      nb::arg("results"), nb::arg("published"), nb::arg("only"), nb::arg("as_"),
      nb::arg("every_source"), nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "compare_runs",
      [](const std::string& a, const std::string& b) { return HeldTable{compare_runs(a, b)}; },
      nb::arg("a"), nb::arg("b"), nb::call_guard<nb::gil_scoped_release>());
  nb::class_<PublishResult>(module, "PublishResult", "What publish() did.")
      .def_ro("address", &PublishResult::address, "Of the branch, for a browser.")
      .def_ro("sent", &PublishResult::sent, "Files that were new or changed.")
      .def_ro("unchanged", &PublishResult::unchanged)
      .def_ro("removed", &PublishResult::removed);
  module.def(
      "publish_capture",
      [](const std::string& data_root, const std::string& repo, const std::string& branch,
         bool private_repo) {
        return publish_capture(data_root, {repo, branch, private_repo, true});
      },
      nb::arg("data_root"), nb::arg("repo"), nb::arg("branch"), nb::arg("private_repo"),
      nb::call_guard<nb::gil_scoped_release>());
  module.def("can_publish", &can_publish);
}

}  // namespace qkscope::python
