// plan_jobs() of qkscope/experimental/cluster.h.
#include <filesystem>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "capture/format/data_root.h"
#include "capture/run/capture_plan.h"
#include "qkscope/experimental/cluster.h"
#include "study/cluster/slurm.h"
#include "study/cluster/submission.h"
#include "study/cluster/task_script.h"
#include "study/sweep/sweep.h"
#include "study/sweep/sweep_shards.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

// Slurm interprets % and \ in log paths as patterns, and the script quotes the path.
void check_path(const std::string& path) {
  for (const char c : path)
    if (c == '"' || c == '\\' || c == '%' || static_cast<unsigned char>(c) < ' ')
      bad_input(
          "{}: expected a path without \", %, \\ and control characters, for a line of "
          "#SBATCH",
          in_quotes(path));
  if (path.find("://") != std::string::npos)
    bad_input(
        "{}: scripts and logs of a submission lie beside its results: expected a folder that "
        "all nodes share",
        path);
}

// Absolute path of the submission folder, independent of the working folder.
std::string cluster_folder(const std::string& path) {
  check_path(path);
  return fs::absolute(path).lexically_normal().string();
}

// A job before its script is rendered.
struct JobPlan {
  std::string name;
  std::string what;
  std::vector<std::string> arguments;  // appended to the arguments of the program
  std::vector<std::size_t> after = {};
  std::int64_t tasks = 1;
  bool runs_model = false;
  bool retries_failures = true;
  double flop = 0;
  std::int64_t bytes = 0;
};

class JobList {
 public:
  JobList(ClusterPlan& plan, const SlurmOptions& slurm, const TaskProgram& program)
      : plan_(plan), slurm_(slurm), program_(program), folder_(plan.folder) {
    check_path(program.folder);
  }

  // Appends a job to the plan and returns its index.
  std::size_t add(const JobPlan& job) {
    TaskScript task{.job = plan_.name + "." + job.name,
                    .what = job.what,
                    .folder = program_.folder,
                    .log = folder_.log_pattern(job.name, job.tasks > 1),
                    .command = {program_.program},
                    .tasks = job.tasks,
                    .runs_model = job.runs_model,
                    .retries_failures = job.retries_failures};
    const auto append = [&](const std::vector<std::string>& words) {
      task.command.insert(task.command.end(), words.begin(), words.end());
    };
    append(program_.arguments);
    append(job.arguments);
    if (slurm_.cpus > 0) append({"--threads", std::to_string(slurm_.cpus)});
    plan_.jobs.push_back({.name = job.name,
                          .script = render_script(task, slurm_),
                          .tasks = job.tasks,
                          .after = job.after,
                          .flop = job.flop,
                          .bytes = job.bytes});
    return plan_.jobs.size() - 1;
  }

 private:
  ClusterPlan& plan_;
  const SlurmOptions& slurm_;
  const TaskProgram& program_;
  SubmissionFolder folder_;
};

// Throws bad input if the run was begun with another number of shards or another configuration.
void check_begun(const Sweep::State& sweep, const SweepRun& run, std::int64_t shards) {
  const auto begun = begun_shards(sweep.folder, run);
  if (begun > 0 && begun != shards)
    bad_input(
        "run {}: its texts were begun in {} shard{}, not in {}; submit with --shards {}, or remove "
        "{} to begin again",
        run.label, begun, begun == 1 ? "" : "s", shards, begun, sweep.folder.capture(run.label));
  if (run.data.empty() && run.captures && !sweep.folder.captured(run) &&
      DataRoot(sweep.folder.capture(run.label)).finished())
    bad_input(
        "run {}: {} holds a capture with another configuration; 'qkscope sweep --overwrite' "
        "replaces it, or remove it",
        run.label, sweep.folder.capture(run.label));
}

class SweepJobs {
 public:
  SweepJobs(ClusterPlan& plan, const SlurmOptions& slurm, const TaskProgram& program)
      : plan_(plan), jobs_(plan, slurm, program) {}

  void add(const PlannedRun& run) {
    const bool captured = run.captured && run.measured;
    if (captured && run.analysed) return;
    std::vector<std::size_t> before;
    if (!captured) before = {add_merge(run, add_capture(run))};
    analysed_.push_back(
        jobs_.add({.name = run.label + ".analyse",
                   .what = fmt::format("Analyses run {} of the sweep {}.", run.label, plan_.name),
                   .arguments = {"--only", run.label, "--part", "analyse"},
                   .after = before}));
  }

  void add_tables() {
    jobs_.add({.name = "tables",
               .what = fmt::format("Tables and figures of the sweep {}.", plan_.name),
               .arguments = {"--part", "tables"},
               .after = analysed_,
               .retries_failures = false});
  }

 private:
  std::size_t add_capture(const PlannedRun& run) {
    const auto shards = plan_.shards;
    const double flop =
        (run.capture ? run.capture->flop : 0) + (run.statistics ? run.statistics->flop : 0);
    const auto texts = shards == 1 ? std::string("the texts")
                                   : fmt::format("one of {} shards of the texts", shards);
    return jobs_.add({.name = run.label + ".capture",
                      .what = fmt::format("Captures {} of run {} of the sweep {}.", texts,
                                          run.label, plan_.name),
                      .arguments = {"--only", run.label, "--part", "capture"},
                      .tasks = shards,
                      .runs_model = true,
                      .flop = flop / static_cast<double>(shards),
                      .bytes = run.capture ? run.capture->bytes / shards : 0});
  }

  std::size_t add_merge(const PlannedRun& run, std::size_t capture) {
    return jobs_.add(
        {.name = run.label + ".merge",
         .what = fmt::format("Captures what tasks of run {} of the sweep {} left, and merges all.",
                             run.label, plan_.name),
         .arguments = {"--only", run.label, "--part", "merge", "--shards",
                       std::to_string(plan_.shards)},
         .after = {capture},
         .runs_model = true});
  }

  ClusterPlan& plan_;
  JobList jobs_;
  std::vector<std::size_t> analysed_;
};

void refuse_unplanned(const std::vector<PlannedRun>& runs) {
  for (const auto& run : runs)
    if (!run.error.empty())
      throw Error(run.error_kind, fmt::format("run {}: {}", run.label, run.error));
}

}  // namespace

ClusterPlan plan_jobs(const Sweep& sweep, const SlurmOptions& slurm, const TaskProgram& program) {
  return translate_exceptions([&] {
    check_slurm(slurm);
    if (sweep.state().folder.in_store())
      bad_input(
          "{}: the tasks of a sweep share a local folder, not an address; choose another --out, or "
          "start 'qkscope sweep --shard auto' as tasks of your own",
          sweep.place());
    ClusterPlan plan{.name = sweep.name(),
                     .folder = cluster_folder(sweep.folder() + "/cluster"),
                     .shards = slurm.shards,
                     .jobs = {},
                     .runs = {}};
    SweepJobs jobs(plan, slurm, program);
    for (const auto& run : sweep.state().config.runs) check_begun(sweep.state(), run, slurm.shards);
    plan.runs = sweep.plan();
    refuse_unplanned(plan.runs);
    for (const auto& run : plan.runs) jobs.add(run);
    jobs.add_tables();
    return plan;
  });
}

ClusterPlan plan_jobs(const CapturePlan& capture, const SlurmOptions& slurm,
                      const TaskProgram& program) {
  return translate_exceptions([&] {
    check_slurm(slurm);
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
    if (root.finished() && root.shards().empty()) return plan;
    const auto dry = dry_run(capture);
    const auto shards = slurm.shards;
    JobList jobs(plan, slurm, program);
    const auto captured = jobs.add({.name = "capture",
                                    .what = fmt::format("Captures texts into {}.", root.path()),
                                    .arguments = {},
                                    .tasks = shards,
                                    .runs_model = true,
                                    .flop = dry.flop / static_cast<double>(shards),
                                    .bytes = dry.bytes / shards});
    if (shards > 1)
      jobs.add({.name = "merge",
                .what = fmt::format("Captures what tasks left in {}, and merges all.", root.path()),
                .arguments = {"--shards", std::to_string(shards)},
                .after = {captured},
                .runs_model = true});
    return plan;
  });
}

}  // namespace qkscope
