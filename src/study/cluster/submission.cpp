// Implements the record of a submission, and submit_jobs().
#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "study/cluster/slurm.h"

namespace qkscope {

// Keys of submission.json.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SubmittedJob, name, id, tasks)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PlannedRunSize, label, examples, tokens)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SlurmSubmission, shards, complete, jobs, runs)

namespace {

bool is_error_line(std::string_view line) {
  const auto has = [&](std::string_view mark) { return line.find(mark) != std::string_view::npos; };
  // Ignore Slurm's message about a script that requeues itself: the script logs the reason.
  if (has("DUE TO JOB REQUEUE")) return false;
  constexpr std::string_view kMarks[] = {"error:", "CANCELLED", "oom-kill", "Killed", "requeued, "};
  return std::ranges::any_of(kMarks, has);
}

// Cancels the held jobs of an interrupted submission. Throws a bad-input error if jobs of a
// complete submission are queued. Always queries the queue: an unreachable controller fails here,
// before anything is submitted.
void cancel_interrupted_submission(const SubmissionFolder& folder, const std::string& path) {
  const auto earlier = folder.read().value_or(SlurmSubmission{});
  const auto tasks = list_queued_tasks(earlier.job_ids());
  if (tasks.empty()) return;
  if (!earlier.complete) {
    log::info("cancelling {} held jobs of a submission that was broken off", earlier.jobs.size());
    return cancel_jobs(earlier.job_ids());
  }
  const auto& first = tasks.front();
  const auto job = std::ranges::find(earlier.jobs, first.job, &SubmittedJob::id);
  bad_input(
      "{}: it is submitted already, and {} of its tasks are in the queue (job {}, {}, is {}); "
      "wait for them, or end them with 'scancel {}' and so on for the ids in submission.json",
      path, tasks.size(), first.job, job->name, first.state, first.job);
}

// Submits all jobs, then releases the jobs without dependencies: no job starts before the release.
void submit_all(const ClusterPlan& plan, const SubmissionFolder& folder,
                const std::atomic<bool>* stop, SlurmSubmission& submission) {
  std::vector<std::string> held;
  for (const auto& job : plan.jobs) {
    if (stop != nullptr && stop->load()) failure("stopped");
    std::vector<std::string> after;
    for (const auto earlier : job.after) after.push_back(submission.jobs[earlier].id);
    const auto id = submit_script(folder.script_path(job.name), after, after.empty());
    if (after.empty()) held.push_back(id);
    submission.jobs.push_back({.name = job.name, .id = id, .tasks = job.tasks});
    folder.write(submission);  // after a kill here the next submission cancels the held jobs
  }
  release_jobs(held);
}

// Cancels the submitted jobs, then rethrows `error` with the outcome added to its message.
[[noreturn]] void cancel_jobs_and_rethrow(const Error& error, const std::vector<std::string>& ids) {
  auto result =
      fmt::format("the {} jobs before it are cancelled, nothing is submitted", ids.size());
  if (ids.empty()) result = "nothing was submitted";
  try {
    cancel_jobs(ids);
  } catch (const Error& again) {
    result = fmt::format(
        "{} jobs before it are held and could not be cancelled ({}): the next submission does it",
        ids.size(), again.what());
  }
  throw Error(error.kind(), fmt::format("{}; {}", error.what(), result));
}

}  // namespace

PlannedRunSize planned_run_size(const PlannedRun& run) {
  if (run.capture) return {run.label, run.capture->examples, run.capture->tokens};
  if (run.statistics) return {run.label, run.statistics->examples, run.statistics->tokens};
  return {.label = run.label};
}

std::vector<std::string> SlurmSubmission::job_ids() const {
  return project(jobs, &SubmittedJob::id);
}

std::string SubmissionFolder::log_path_pattern(const std::string& job, bool array) const {
  return fmt::format("{}/logs/{}.{}.log", path_, job, array ? "%A_%a" : "%j");
}

std::string SubmissionFolder::log_path(const SubmittedJob& job, std::int64_t task) const {
  const auto index = job.tasks > 1 ? fmt::format("_{}", task) : "";
  return fmt::format("{}/logs/{}.{}{}.log", path_, job.name, job.id, index);
}

void SubmissionFolder::create() const {
  for (const auto* folder : {"/scripts", "/logs"}) make_folders(path_ + folder);
}

FileLock SubmissionFolder::lock() const {
  FileLock lock(path_ + "/lock", FileLock::LockMode::exclusive, FileLock::LockWait::no);
  if (!lock.is_held())
    bad_input("{}: another 'qkscope submit' is at work here; wait until it ends", path_);
  return lock;
}

std::optional<SlurmSubmission> SubmissionFolder::read() const {
  if (!path_exists(submission_file())) return {};
  const Json json = load_json(submission_file());
  try {
    return json.get<SlurmSubmission>();
  } catch (const Json::exception& error) {
    bad_input("{}: not a list of jobs as 'qkscope submit' writes it: {}", submission_file(),
              error.what());
  }
}

void SubmissionFolder::write(const SlurmSubmission& submission) const {
  write_file(submission_file(), Json(submission).dump(1) + "\n");
}

std::string find_error_line(std::string_view log) {
  std::string last;
  std::string error;
  for (const auto& line : split(log, '\n')) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    last = line;
    if (is_error_line(line)) error = line;
  }
  return printable(error.empty() ? last : error);
}

std::string read_error_line(const std::string& file) {
  constexpr std::size_t kTailBytes = 64 << 10;
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const auto size = static_cast<std::size_t>(in.tellg());
  std::string text(std::min(size, kTailBytes), '\0');
  in.seekg(static_cast<std::streamoff>(size - text.size()));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return find_error_line(text);
}

std::vector<SubmittedJob> submit_jobs(const ClusterPlan& plan, const std::atomic<bool>* stop) {
  return translate_exceptions([&] {
    const SubmissionFolder folder(plan.folder);
    folder.create();
    const auto lock = folder.lock();
    cancel_interrupted_submission(folder, plan.folder);
    for (const auto& job : plan.jobs) write_file(folder.script_path(job.name), job.script);
    SlurmSubmission submission{.shards = plan.shards, .jobs = {}, .runs = {}};
    for (const auto& run : plan.runs) submission.runs.push_back(planned_run_size(run));
    try {
      submit_all(plan, folder, stop, submission);
    } catch (const Error& error) {
      cancel_jobs_and_rethrow(error, submission.job_ids());
    }
    submission.complete = true;
    folder.write(submission);
    return submission.jobs;
  });
}

}  // namespace qkscope
