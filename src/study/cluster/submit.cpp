// submit_jobs() of qkscope/experimental/cluster.h.
#include <algorithm>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "qkscope/experimental/cluster.h"
#include "study/cluster/slurm.h"
#include "study/cluster/submission.h"

namespace qkscope {
namespace {

class Submitter {
 public:
  Submitter(const ClusterPlan& plan, const std::atomic<bool>* stop)
      : plan_(plan), stop_(stop), folder_(plan.folder) {}

  std::vector<SubmittedJob> run() {
    folder_.make();
    const auto lock = folder_.lock();
    check_earlier();
    for (const auto& job : plan_.jobs) write_file(folder_.script(job.name), job.script);
    try {
      submit_held();
      release_jobs(roots());
    } catch (const Error& error) {
      cancel_submitted(error);
    }
    submission_.complete = true;
    folder_.write(submission_);
    std::vector<SubmittedJob> submitted;
    for (const auto& job : submission_.jobs) submitted.push_back({job.name, job.id});
    return submitted;
  }

 private:
  // Queries the queue before anything is submitted: an unreachable controller fails here.
  void check_earlier() const {
    const auto earlier = folder_.read();
    const auto tasks = queued_tasks(earlier ? earlier->ids() : std::vector<std::string>{});
    if (tasks.empty()) return;
    if (!earlier->complete) {
      log::info("cancelling {} held jobs of a submission that was broken off",
                earlier->jobs.size());
      return cancel_jobs(earlier->ids());
    }
    const auto& first = tasks.front();
    const auto job = std::ranges::find_if(
        earlier->jobs, [&](const SubmissionJob& one) { return one.id == first.job; });
    bad_input(
        "{}: it is submitted already, and {} of its tasks are in the queue (job {}, {}, is {}); "
        "wait for them, or end them with 'scancel {}' and so on for the ids in submission.json",
        plan_.folder, tasks.size(), first.job, job->name, first.state, first.job);
  }

  void submit_held() {
    submission_.shards = plan_.shards;
    for (const auto& run : plan_.runs)
      submission_.runs.push_back({.label = run.label,
                                  .examples = run.capture      ? run.capture->examples
                                              : run.statistics ? run.statistics->examples
                                                               : 0,
                                  .tokens = run.capture      ? run.capture->tokens
                                            : run.statistics ? run.statistics->tokens
                                                             : 0});
    for (const auto& job : plan_.jobs) {
      if (stop_ != nullptr && stop_->load()) failure("stopped");
      std::vector<std::string> after;
      for (const auto earlier : job.after) after.push_back(submission_.jobs[earlier].id);
      const auto id = submit_script(folder_.script(job.name), after, job.after.empty());
      submission_.jobs.push_back({.name = job.name, .id = id, .tasks = job.tasks});
      folder_.write(submission_);  // after a kill here the next submission cancels the held jobs
    }
  }

  // Jobs without dependencies. While they are held, no job starts.
  std::vector<std::string> roots() const {
    std::vector<std::string> ids;
    for (std::size_t i = 0; i < plan_.jobs.size(); ++i)
      if (plan_.jobs[i].after.empty()) ids.push_back(submission_.jobs[i].id);
    return ids;
  }

  [[noreturn]] void cancel_submitted(const Error& error) const {
    const auto ids = submission_.ids();
    if (ids.empty())
      throw Error(error.kind(), fmt::format("{}; nothing was submitted", error.what()));
    try {
      cancel_jobs(ids);
    } catch (const Error& again) {
      throw Error(error.kind(),
                  fmt::format("{}; {} jobs before it are held and could not be cancelled ({}): the "
                              "next submission does it",
                              error.what(), ids.size(), again.what()));
    }
    throw Error(error.kind(), fmt::format("{}; the {} jobs before it are cancelled, nothing is "
                                          "submitted",
                                          error.what(), ids.size()));
  }

  const ClusterPlan& plan_;
  const std::atomic<bool>* stop_;
  SubmissionFolder folder_;
  Submission submission_;
};

}  // namespace

std::vector<SubmittedJob> submit_jobs(const ClusterPlan& plan, const std::atomic<bool>* stop) {
  return translate_exceptions([&] { return Submitter(plan, stop).run(); });
}

}  // namespace qkscope
