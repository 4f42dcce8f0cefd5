// Implements plan_jobs(): the Slurm jobs of a sweep or of a capture.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "capture/format/data_root.h"
#include "capture/run/capture_plan.h"
#include "qkscope/experimental/cluster.h"
#include "study/cluster/slurm.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

// Throws a bad-input error for a path that is unsafe on an #SBATCH line: in log paths Slurm
// interprets '%' and '\' as patterns, and the script puts the path in double quotes.
void check_path(const std::string& path) {
  const bool unsafe = std::ranges::any_of(
      path, [](unsigned char c) { return c == '"' || c == '\\' || c == '%' || c < ' '; });
  if (unsafe)
    bad_input("{}: expected a path without \", %, \\ and control characters, for a line of #SBATCH",
              in_quotes(path));
  if (path.find("://") != std::string::npos)
    bad_input(
        "{}: scripts and logs of a submission lie beside its results: expected a folder that "
        "all nodes share",
        path);
}

// Returns the absolute path of the submission folder, for tasks in another working folder.
std::string cluster_folder(const std::string& path) {
  check_path(path);
  return fs::absolute(path).lexically_normal().string();
}

class JobPlanner {
 public:
  JobPlanner(ClusterPlan& plan, const SlurmOptions& slurm, const TaskProgram& program)
      : plan_(plan), slurm_(slurm), program_(program) {
    check_path(program.folder);
  }

  // Appends a job and returns its index. `task` provides the description, the script flags, and the
  // arguments to append to those of the program.
  std::size_t add(ClusterJob job, TaskScript task) {
    task.job = plan_.name + "." + job.name;
    task.folder = program_.folder;
    task.log = SubmissionFolder(plan_.folder).log_path_pattern(job.name, job.tasks > 1);
    task.tasks = job.tasks;
    auto& command = task.command;
    command.insert(command.begin(), program_.arguments.begin(), program_.arguments.end());
    command.insert(command.begin(), program_.program);
    if (slurm_.cpus > 0) command.insert(command.end(), {"--threads", std::to_string(slurm_.cpus)});
    job.script = render_batch_script(task, slurm_);
    plan_.jobs.push_back(std::move(job));
    return plan_.jobs.size() - 1;
  }

  // Appends the jobs of an unfinished run of a sweep. Returns the index of its last job; nullopt
  // for a finished run.
  std::optional<std::size_t> add_run(const PlannedRun& run) {
    const bool captured = run.captured && run.measured;
    if (captured && run.analysed) return {};
    std::vector<std::size_t> before;
    if (!captured) before = {add_capture_and_merge(run)};
    return add({.name = run.label + ".analyse", .after = before},
               {.what = fmt::format("Analyses run {} of the sweep {}.", run.label, plan_.name),
                .command = {"--only", run.label, "--part", "analyse"}});
  }

 private:
  std::size_t add_capture_and_merge(const PlannedRun& run) {
    const auto shards = plan_.shards;
    const double flop =
        (run.capture ? run.capture->flop : 0) + (run.statistics ? run.statistics->flop : 0);
    const auto texts = shards == 1 ? std::string("the texts")
                                   : fmt::format("one of {} shards of the texts", shards);
    const auto capture = add({.name = run.label + ".capture",
                              .tasks = shards,
                              .flop = flop / static_cast<double>(shards),
                              .bytes = run.capture ? run.capture->bytes / shards : 0},
                             {.what = fmt::format("Captures {} of run {} of the sweep {}.", texts,
                                                  run.label, plan_.name),
                              .command = {"--only", run.label, "--part", "capture"},
                              .runs_model = true});
    return add(
        {.name = run.label + ".merge", .after = {capture}},
        {.what = fmt::format("Captures what tasks of run {} of the sweep {} left, and merges all.",
                             run.label, plan_.name),
         .command = {"--only", run.label, "--part", "merge", "--shards", std::to_string(shards)},
         .runs_model = true});
  }

  ClusterPlan& plan_;
  const SlurmOptions& slurm_;
  const TaskProgram& program_;
};

// Throws a bad-input error if the run was started with another number of shards or another
// configuration.
void check_begun(const Sweep::State& sweep, const SweepRun& run, std::int64_t shards) {
  const auto begun = started_shard_count(sweep.folder, run);
  if (begun > 0 && begun != shards)
    bad_input(
        "run {}: its texts were begun in {} shard{}, not in {}; submit with --shards {}, or remove "
        "{} to begin again",
        run.label, begun, begun == 1 ? "" : "s", shards, begun,
        sweep.folder.capture_location(run.label));
  if (run.data.empty() && run.captures && !sweep.folder.has_complete_capture(run) &&
      DataRoot(sweep.folder.capture_location(run.label)).is_finished())
    bad_input(
        "run {}: {} holds a capture with another configuration; 'qkscope sweep --overwrite' "
        "replaces it, or remove it",
        run.label, sweep.folder.capture_location(run.label));
}

}  // namespace

ClusterPlan plan_jobs(const Sweep& sweep, const SlurmOptions& slurm, const TaskProgram& program) {
  return translate_exceptions([&] {
    check_slurm_options(slurm);
    if (sweep.state().folder.is_in_store())
      bad_input(
          "{}: the tasks of a sweep share a local folder, not an address; choose another --out, or "
          "start 'qkscope sweep --shard auto' as tasks of your own",
          sweep.place());
    ClusterPlan plan{.name = sweep.name(),
                     .folder = cluster_folder(sweep.folder() + "/cluster"),
                     .shards = slurm.shards,
                     .jobs = {},
                     .runs = {}};
    JobPlanner jobs(plan, slurm, program);
    for (const auto& run : sweep.state().config.runs) check_begun(sweep.state(), run, slurm.shards);
    plan.runs = sweep.plan();
    for (const auto& run : plan.runs)
      if (!run.error.empty())
        throw Error(run.error_kind, fmt::format("run {}: {}", run.label, run.error));
    std::vector<std::size_t> analysed;
    for (const auto& run : plan.runs)
      if (const auto last = jobs.add_run(run)) analysed.push_back(*last);
    jobs.add({.name = "tables", .after = analysed},
             {.what = fmt::format("Tables and figures of the sweep {}.", plan.name),
              .command = {"--part", "tables"},
              .retries_failures = false});
    return plan;
  });
}

ClusterPlan plan_jobs(const CapturePlan& capture, const SlurmOptions& slurm,
                      const TaskProgram& program) {
  return translate_exceptions([&] {
    check_slurm_options(slurm);
    const DataRoot root(capture.config().output.data_root);
    ClusterPlan plan{.name = fs::path(root.path()).filename().string(),
                     .folder = cluster_folder(root.path() + ".cluster"),
                     .shards = slurm.shards,
                     .jobs = {},
                     .runs = {}};
    check_path(plan.name);
    for (const auto& shard : root.shards())
      if (shard.count != slurm.shards)
        bad_input(
            "{}: its texts were begun in {} shards, not in {}; submit with --shards {}, or "
            "remove it to begin again",
            root.path(), shard.count, slurm.shards, shard.count);
    if (root.is_finished() && root.shards().empty()) return plan;
    const auto dry = dry_run(capture);
    const auto shards = slurm.shards;
    JobPlanner jobs(plan, slurm, program);
    const auto captured =
        jobs.add({.name = "capture",
                  .tasks = shards,
                  .flop = dry.flop / static_cast<double>(shards),
                  .bytes = dry.bytes / shards},
                 {.what = fmt::format("Captures texts into {}.", root.path()), .runs_model = true});
    if (shards > 1)
      jobs.add({.name = "merge", .after = {captured}},
               {.what = fmt::format("Captures what tasks left in {}, and merges all.", root.path()),
                .command = {"--shards", std::to_string(shards)},
                .runs_model = true});
    return plan;
  });
}

}  // namespace qkscope
