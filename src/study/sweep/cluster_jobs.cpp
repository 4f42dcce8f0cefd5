// Implements plan_jobs(), the Slurm jobs of a sweep or of a capture, and sweep_status(), the
// progress of a sweep from the files on disk and from squeue.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "capture/format/data_root.h"
#include "qkscope/experimental/cluster.h"
#include "study/cluster/slurm.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

// Throws a bad-input error for a path that is unsafe on an #SBATCH line: in log paths Slurm
// interprets '%' and '\' as patterns, and the script puts the path in double quotes.
void check_path_is_safe_in_script(const std::string& path) {
  const bool unsafe = std::ranges::any_of(
      path, [](unsigned char c) { return c == '"' || c == '\\' || c == '%' || c < ' '; });
  if (unsafe)
    reject("{}: expected a path without \", %, \\ and control characters, for a line of #SBATCH",
           quote_text(path));
  if (path.find("://") != std::string::npos)
    reject(
        "{}: scripts and logs of a submission lie beside its results: expected a folder that "
        "all nodes share",
        path);
}

// Returns the absolute path of the submission folder, for tasks in another working folder.
std::string resolve_submission_folder(const std::string& path) {
  check_path_is_safe_in_script(path);
  return fs::absolute(path).lexically_normal().string();
}

class JobPlanner {
 public:
  JobPlanner(ClusterPlan& plan, const SlurmOptions& slurm, const TaskProgram& program)
      : plan_(plan), slurm_(slurm), program_(program) {
    check_path_is_safe_in_script(program.folder);
  }

  // Appends a job and returns its index. `task` sets description, script flags and arguments.
  std::size_t add_job(ClusterJob job, BatchScript task) {
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

  // Appends the jobs of a run. Returns the index of its last job; nullopt for a finished run.
  std::optional<std::size_t> add_run_jobs(const PlannedRun& run) {
    const bool captured = run.captured && run.measured;
    if (captured && run.analysed) return {};
    std::vector<std::size_t> before;
    if (!captured) {
      const auto shards = plan_.shards;
      const double flop =
          (run.capture ? run.capture->flop : 0) + (run.statistics ? run.statistics->flop : 0);
      const auto texts = shards == 1 ? std::string("the texts")
                                     : fmt::format("one of {} shards of the texts", shards);
      const auto capture = add_job({.name = run.label + ".capture",
                                    .tasks = shards,
                                    .flop = flop / static_cast<double>(shards),
                                    .bytes = run.capture ? run.capture->bytes / shards : 0},
                                   {.what = fmt::format("Captures {} of run {} of the sweep {}.",
                                                        texts, run.label, plan_.name),
                                    .command = {"--only", run.label, "--part", "capture"},
                                    .runs_model = true});
      before = {add_job(
          {.name = run.label + ".merge", .after = {capture}},
          {.what =
               fmt::format("Captures what tasks of run {} of the sweep {} left, and merges all.",
                           run.label, plan_.name),
           .command = {"--only", run.label, "--part", "merge", "--shards", std::to_string(shards)},
           .runs_model = true})};
    }
    return add_job({.name = run.label + ".analyse", .after = before},
                   {.what = fmt::format("Analyses run {} of the sweep {}.", run.label, plan_.name),
                    .command = {"--only", run.label, "--part", "analyse"}});
  }

 private:
  ClusterPlan& plan_;
  const SlurmOptions& slurm_;
  const TaskProgram& program_;
};

// Throws a bad-input error if the run was started with a different shard count or configuration.
void check_can_resume_run(const Sweep::State& sweep, const SweepRun& run, std::int64_t shards) {
  const auto begun = started_shard_count(sweep.folder, run);
  if (begun > 0 && begun != shards)
    reject(
        "run {}: its texts were begun in {} shard{}, not in {}; submit with --shards {}, or remove "
        "{} to begin again",
        run.label, begun, begun == 1 ? "" : "s", shards, begun,
        sweep.folder.capture_location(run.label));
  if (run.data.empty() && run.captures && !sweep.folder.has_complete_capture(run) &&
      DataRoot(sweep.folder.capture_location(run.label)).is_finished())
    reject(
        "run {}: {} holds a capture with another configuration; 'qkscope sweep --overwrite' "
        "replaces it, or remove it",
        run.label, sweep.folder.capture_location(run.label));
}

using ShardState = ShardStatus::State;

// A shard with a journal entry younger than this is running: entries are written every few seconds.
constexpr double kFreshSeconds = 30;

bool is_running_task(const QueuedTask& task) {
  return task.state == "RUNNING" || task.state == "COMPLETING" || task.state == "CONFIGURING";
}

class SweepStatusReader {
 public:
  SweepStatusReader(const Sweep& sweep, const std::vector<PlannedRun>& plan)
      : config_(sweep.state().config),
        folder_(sweep.state().folder),
        submissions_(folder_.path() + "/cluster") {
    status_.name = sweep.name();
    status_.folder = sweep.place();
    for (const auto& run : plan) sizes_[run.label] = planned_run_size(run);
  }

  SweepStatus read() {
    folder_.download_sweep_and_runs(config_);
    read_submission();
    for (const auto& run : config_.runs) status_.runs.push_back(run_status(run));
    double left = 0;  // tokens still to process
    for (const auto& run : status_.runs) {
      for (const auto& shard : run.shards)
        if (shard.state == ShardState::running)
          status_.tokens_per_second += shard.tokens_per_second;
      if (!run.shards.empty())
        left += to_double(std::max<std::int64_t>(0, run.all_tokens - run.tokens));
    }
    if (status_.tokens_per_second > 0) status_.seconds_left = left / status_.tokens_per_second;
    if (submission_)
      for (const auto& job : submission_->jobs)
        for (std::int64_t index = 0; index < job.tasks; ++index) add_task_problem(job, index);
    return std::move(status_);
  }

 private:
  void read_submission() {
    submission_ = submissions_.read_submission();
    if (!submission_) return;
    status_.submitted = true;
    for (const auto& run : submission_->runs)
      if (run.tokens > 0) sizes_[run.label] = run;
    if (!submission_->complete) {
      status_.slurm = "the submission was broken off: submit again";
      return;
    }
    std::map<std::string, std::string> names;  // job name by job id
    for (const auto& job : submission_->jobs) names[job.id] = job.name;
    try {
      for (const auto& task : list_queued_tasks(submission_->job_ids())) {
        queue_[{names[task.job], task.index}] = task;
        ++(is_running_task(task) ? status_.running : status_.queued);
      }
    } catch (const Error& error) {
      status_.slurm = error.what();
    }
  }

  RunStatus run_status(const SweepRun& run) const {
    RunStatus status;
    status.label = run.label;
    if (const auto* size = find_in_map(sizes_, run.label)) {
      status.all_examples = size->examples;
      status.all_tokens = size->tokens;
    }
    const auto failed = folder_.read_failure_file(run.label);
    try {
      status.state = failed                                  ? "failed"
                     : folder_.is_run_finished(config_, run) ? "done"
                     : folder_.has_complete_data(run)        ? "captured"
                                                             : "waiting";
      status.error = failed.value_or("");
      if (!folder_.has_complete_data(run)) add_shard_statuses(run, status);
    } catch (const Error& error) {  // the state file is damaged
      status.state = "failed";
      status.error = error.what();
    }
    return status;
  }

  void add_shard_statuses(const SweepRun& run, RunStatus& status) const {
    const auto begun = started_shard_count(folder_, run);
    const auto count = begun > 0 ? begun : submission_ ? submission_->shards : 1;
    const auto captures = read_capture_progress(folder_, run);
    const auto statistics = read_statistics_progress(folder_, run);
    const bool captured = folder_.has_complete_capture(run);
    const bool measured = folder_.has_complete_statistics(run);
    for (std::int64_t index = 0; index < count; ++index) {
      const auto* capture = find_in_map(captures, index);
      const auto* stats = find_in_map(statistics, index);
      // Show the progress of the capture until it is complete, then that of the statistics.
      const auto* shown = captured ? stats : capture;
      const bool complete = (captured || (capture != nullptr && capture->complete)) &&
                            (measured || (stats != nullptr && stats->complete));
      status.shards.push_back(shard_status(run.label, index, shown, complete));
      status.examples += status.shards.back().examples;
      status.tokens += status.shards.back().tokens;
    }
    const auto waiting =
        std::ranges::count(status.shards, ShardState::waiting, &ShardStatus::state);
    if (waiting < count && status.state == "waiting") status.state = "capturing";
  }

  ShardStatus shard_status(const std::string& label, std::int64_t index,
                           const ShardProgress* progress, bool complete) const {
    ShardStatus status;
    const auto* task = find_in_map(queue_, {label + ".capture", index});
    if (task != nullptr)
      status.slurm =
          task->reason.empty() ? task->state : fmt::format("{} ({})", task->state, task->reason);
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    const bool fresh = progress != nullptr && now.count() - progress->written < kFreshSeconds;
    status.state = complete                                               ? ShardState::done
                   : fresh || (task != nullptr && is_running_task(*task)) ? ShardState::running
                   : progress != nullptr                                  ? ShardState::unfinished
                                                                          : ShardState::waiting;
    if (progress == nullptr) return status;
    status.examples = progress->examples;
    status.tokens = progress->tokens;
    const auto seconds = progress->written - progress->began;
    if (seconds > 0) status.tokens_per_second = static_cast<double>(progress->tokens) / seconds;
    return status;
  }

  // Records a task that ended or was requeued without finishing its work.
  void add_task_problem(const SubmittedJob& job, std::int64_t index) {
    const auto* task = find_in_map(queue_, {job.name, index});
    if ((task != nullptr && is_running_task(*task)) || is_task_finished(job.name, index)) return;
    const auto log = submissions_.log_path(job, index);
    const auto line = read_error_line(log);
    if (line.empty()) return;  // the task never started
    const auto name = job.tasks > 1 ? fmt::format("{} {}", job.name, index) : job.name;
    status_.problems.push_back({.task = name, .line = line, .log = log});
  }

  // Returns true if the results of a task exist, whether the task or another process made them.
  bool is_task_finished(const std::string& job, std::int64_t task) const {
    const auto dot = job.rfind('.');
    if (dot == std::string::npos) return status_.finished();  // the job that makes the tables
    const auto label = job.substr(0, dot);
    const auto part = job.substr(dot + 1);
    const auto run = std::ranges::find(status_.runs, label, &RunStatus::label);
    if (run == status_.runs.end() || run->state == "done") return true;
    if (run->shards.empty()) return part != "analyse";
    return part == "capture" && task < std::ssize(run->shards) &&
           run->shards[static_cast<std::size_t>(task)].state == ShardState::done;
  }

  const SweepConfig& config_;
  const SweepFolder& folder_;
  SubmissionFolder submissions_;
  std::optional<SlurmSubmission> submission_;
  std::map<std::pair<std::string, std::int64_t>, QueuedTask> queue_;  // by job name and array index
  std::map<std::string, PlannedRunSize> sizes_;                       // planned size by run label
  SweepStatus status_;
};

}  // namespace

ClusterPlan plan_jobs(const Sweep& sweep, const SlurmOptions& slurm, const TaskProgram& program) {
  return translate_exceptions([&] {
    check_slurm_options(slurm);
    if (sweep.state().folder.is_in_store())
      reject(
          "{}: the tasks of a sweep share a local folder, not an address; choose another --out, or "
          "start 'qkscope sweep --shard auto' as tasks of your own",
          sweep.place());
    ClusterPlan plan;
    plan.name = sweep.name();
    plan.folder = resolve_submission_folder(sweep.folder() + "/cluster");
    plan.shards = slurm.shards;
    JobPlanner jobs(plan, slurm, program);
    for (const auto& run : sweep.state().config.runs)
      check_can_resume_run(sweep.state(), run, slurm.shards);
    plan.runs = sweep.plan();
    for (const auto& run : plan.runs)
      if (!run.error.empty())
        throw Error(run.error_kind, fmt::format("run {}: {}", run.label, run.error));
    std::vector<std::size_t> analysed;
    for (const auto& run : plan.runs)
      if (const auto last = jobs.add_run_jobs(run)) analysed.push_back(*last);
    jobs.add_job({.name = "tables", .after = analysed},
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
    ClusterPlan plan;
    plan.name = fs::path(root.path()).filename().string();
    plan.folder = resolve_submission_folder(root.path() + ".cluster");
    plan.shards = slurm.shards;
    check_path_is_safe_in_script(plan.name);
    for (const auto& shard : root.list_started_shards())
      if (shard.count != slurm.shards)
        reject(
            "{}: its texts were begun in {} shards, not in {}; submit with --shards {}, or "
            "remove it to begin again",
            root.path(), shard.count, slurm.shards, shard.count);
    if (root.is_finished() && root.list_started_shards().empty()) return plan;
    const auto dry = dry_run(capture);
    const auto shards = slurm.shards;
    JobPlanner jobs(plan, slurm, program);
    const auto captured = jobs.add_job(
        {.name = "capture",
         .tasks = shards,
         .flop = dry.flop / static_cast<double>(shards),
         .bytes = dry.bytes / shards},
        {.what = fmt::format("Captures texts into {}.", root.path()), .runs_model = true});
    if (shards > 1)
      jobs.add_job(
          {.name = "merge", .after = {captured}},
          {.what = fmt::format("Captures what tasks left in {}, and merges all.", root.path()),
           .command = {"--shards", std::to_string(shards)},
           .runs_model = true});
    return plan;
  });
}

bool SweepStatus::finished() const {
  return std::ranges::all_of(runs, [](const RunStatus& run) { return run.state == "done"; });
}

const char* to_string(ShardStatus::State state) {
  constexpr const char* kNames[] = {"waiting", "running", "unfinished", "done"};
  return kNames[static_cast<int>(state)];
}

SweepStatus sweep_status(const Sweep& sweep, const std::vector<PlannedRun>& plan) {
  return translate_exceptions([&] { return SweepStatusReader(sweep, plan).read(); });
}

}  // namespace qkscope
