// sweep_status() of qkscope/experimental/cluster.h.
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/core/error.h"
#include "qkscope/experimental/cluster.h"
#include "study/cluster/slurm.h"
#include "study/cluster/submission.h"
#include "study/sweep/sweep.h"
#include "study/sweep/sweep_shards.h"

namespace qkscope {
namespace {

using ShardState = ShardStatus::State;

// A journal grows every few seconds while a model runs; a journal younger than this is active.
constexpr double kFreshSeconds = 30;

double seconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

bool is_at_work(const QueuedTask& task) {
  return task.state == "RUNNING" || task.state == "COMPLETING" || task.state == "CONFIGURING";
}

std::string shown(const QueuedTask& task) {
  return task.reason.empty() ? task.state : fmt::format("{} ({})", task.state, task.reason);
}

// Queued tasks by job name and array index.
class Queue {
 public:
  Queue() = default;
  Queue(const Submission& submission, const std::vector<QueuedTask>& tasks) {
    std::map<std::string, std::string> names;
    for (const auto& job : submission.jobs) names[job.id] = job.name;
    for (const auto& task : tasks) tasks_[{names[task.job], task.index}] = task;
  }

  const QueuedTask* find(const std::string& job, std::int64_t task) const {
    const auto found = tasks_.find({job, task});
    return found == tasks_.end() ? nullptr : &found->second;
  }
  std::int64_t at_work() const {
    return std::ranges::count_if(tasks_, [](const auto& task) { return is_at_work(task.second); });
  }
  std::int64_t size() const { return std::ssize(tasks_); }

 private:
  std::map<std::pair<std::string, std::int64_t>, QueuedTask> tasks_;
};

class StatusReader {
 public:
  StatusReader(const Sweep& sweep, const std::vector<PlannedRun>& plan)
      : config_(sweep.state().config),
        folder_(sweep.state().folder),
        submissions_(folder_.path() + "/cluster") {
    status_.name = sweep.name();
    status_.folder = sweep.place();
    for (const auto& run : plan)
      if (run.capture)
        planned_[run.label] = {run.capture->examples, run.capture->tokens};
      else if (run.statistics)
        planned_[run.label] = {run.statistics->examples, run.statistics->tokens};
  }

  SweepStatus read() {
    folder_.download(config_);
    read_submission();
    for (const auto& run : config_.runs) status_.runs.push_back(run_status(run));
    sum_rates();
    if (submission_)
      for (const auto& job : submission_->jobs) find_problems(job);
    return std::move(status_);
  }

 private:
  void read_submission() {
    submission_ = submissions_.read();
    if (!submission_) return;
    status_.submitted = true;
    for (const auto& run : submission_->runs)
      if (run.tokens > 0) planned_[run.label] = {run.examples, run.tokens};
    if (!submission_->complete) {
      status_.slurm = "the submission was broken off: submit again";
      return;
    }
    try {
      queue_ = Queue(*submission_, queued_tasks(submission_->ids()));
    } catch (const Error& error) {
      status_.slurm = error.what();
    }
    status_.running = queue_.at_work();
    status_.queued = queue_.size() - status_.running;
  }

  RunStatus run_status(const SweepRun& run) const {
    RunStatus status;
    status.label = run.label;
    if (const auto planned = planned_.find(run.label); planned != planned_.end())
      std::tie(status.all_examples, status.all_tokens) = planned->second;
    const auto failed = folder_.read_failure(run.label);
    try {
      status.state = failed                           ? "failed"
                     : folder_.finished(config_, run) ? "done"
                     : is_captured(run)               ? "captured"
                                                      : "waiting";
      status.error = failed.value_or("");
      if (!is_captured(run)) add_shards(run, status);
    } catch (const Error& error) {  // damaged state file
      status.state = "failed";
      status.error = error.what();
    }
    return status;
  }

  bool is_captured(const SweepRun& run) const {
    return folder_.captured(run) && folder_.measured(run);
  }

  void add_shards(const SweepRun& run, RunStatus& status) const {
    const auto begun = begun_shards(folder_, run);
    const auto count = begun > 0 ? begun : submission_ ? submission_->shards : 1;
    const auto captures = by_index(capture_shards(folder_, run));
    const auto statistics = by_index(statistics_shards(folder_, run));
    const bool captured = folder_.captured(run);
    const bool measured = folder_.measured(run);
    for (std::int64_t index = 0; index < count; ++index) {
      const auto* capture = at(captures, index);
      const auto* stats = at(statistics, index);
      // Progress is that of the capture until the capture is complete.
      const auto* shown = captured ? stats : capture;
      const bool complete = (captured || (capture != nullptr && capture->complete)) &&
                            (measured || (stats != nullptr && stats->complete));
      status.shards.push_back(shard_status(run.label, index, shown, complete));
      status.examples += status.shards.back().examples;
      status.tokens += status.shards.back().tokens;
    }
    const bool begins = std::ranges::any_of(
        status.shards, [](const auto& one) { return one.state != ShardState::waiting; });
    if (begins && status.state == "waiting") status.state = "capturing";
  }

  static std::map<std::int64_t, ShardProgress> by_index(const std::vector<ShardProgress>& shards) {
    std::map<std::int64_t, ShardProgress> all;
    for (const auto& one : shards) all[one.shard.index] = one;
    return all;
  }
  static const ShardProgress* at(const std::map<std::int64_t, ShardProgress>& shards,
                                 std::int64_t index) {
    const auto found = shards.find(index);
    return found == shards.end() ? nullptr : &found->second;
  }

  ShardStatus shard_status(const std::string& label, std::int64_t index,
                           const ShardProgress* progress, bool complete) const {
    ShardStatus status;
    const auto* task = queue_.find(label + ".capture", index);
    if (task != nullptr) status.slurm = shown(*task);
    const bool fresh = progress != nullptr && seconds_now() - progress->written < kFreshSeconds;
    status.state = complete                                          ? ShardState::done
                   : fresh || (task != nullptr && is_at_work(*task)) ? ShardState::running
                   : progress != nullptr                             ? ShardState::unfinished
                                                                     : ShardState::waiting;
    if (progress == nullptr) return status;
    status.examples = progress->examples;
    status.tokens = progress->tokens;
    const auto seconds = progress->written - progress->began;
    if (seconds > 0) status.tokens_per_second = static_cast<double>(progress->tokens) / seconds;
    return status;
  }

  void sum_rates() {
    double left = 0;
    for (const auto& run : status_.runs) {
      for (const auto& shard : run.shards)
        if (shard.state == ShardState::running)
          status_.tokens_per_second += shard.tokens_per_second;
      if (!run.shards.empty())
        left += static_cast<double>(std::max<std::int64_t>(0, run.all_tokens - run.tokens));
    }
    if (status_.tokens_per_second > 0) status_.seconds_left = left / status_.tokens_per_second;
  }

  // Records tasks that ended or were requeued without finishing their work.
  void find_problems(const SubmissionJob& job) {
    for (std::int64_t index = 0; index < job.tasks; ++index) {
      const auto* task = queue_.find(job.name, index);
      if ((task != nullptr && is_at_work(*task)) || did_its_work(job.name, index)) continue;
      const auto log = submissions_.log(job, index);
      auto line = error_line_of(log);
      if (line.empty()) continue;  // the task never started
      status_.problems.push_back(
          {.task = job.tasks > 1 ? fmt::format("{} {}", job.name, index) : job.name,
           .line = std::move(line),
           .log = log});
    }
  }

  bool did_its_work(const std::string& job, std::int64_t task) const {
    const auto dot = job.rfind('.');
    if (dot == std::string::npos) return status_.finished();  // job of the combined tables
    const auto label = job.substr(0, dot);
    const auto part = job.substr(dot + 1);
    const auto run = std::ranges::find_if(status_.runs,
                                          [&](const RunStatus& one) { return one.label == label; });
    if (run == status_.runs.end() || run->state == "done") return true;
    if (run->shards.empty()) return part != "analyse";
    return part == "capture" && task < std::ssize(run->shards) &&
           run->shards[static_cast<std::size_t>(task)].state == ShardState::done;
  }

  const SweepConfig& config_;
  const SweepFolder& folder_;
  SubmissionFolder submissions_;
  std::optional<Submission> submission_;
  Queue queue_;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>>
      planned_;  // label -> examples, tokens
  SweepStatus status_;
};

}  // namespace

bool SweepStatus::finished() const {
  return std::ranges::all_of(runs, [](const RunStatus& run) { return run.state == "done"; });
}

const char* to_string(ShardStatus::State state) {
  constexpr const char* kNames[] = {"waiting", "running", "unfinished", "done"};
  return kNames[static_cast<int>(state)];
}

SweepStatus sweep_status(const Sweep& sweep, const std::vector<PlannedRun>& plan) {
  return translate_exceptions([&] { return StatusReader(sweep, plan).read(); });
}

}  // namespace qkscope
