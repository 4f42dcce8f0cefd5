#include "study/cluster/submission.h"

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/output_file.h"

namespace qkscope {

std::vector<std::string> Submission::ids() const {
  std::vector<std::string> all;
  for (const auto& job : jobs) all.push_back(job.id);
  return all;
}

std::string SubmissionFolder::log_pattern(const std::string& job, bool array) const {
  return fmt::format("{}/logs/{}.{}.log", path_, job, array ? "%A_%a" : "%j");
}

std::string SubmissionFolder::log(const SubmissionJob& job, std::int64_t task) const {
  const auto index = job.tasks > 1 ? fmt::format("_{}", task) : "";
  return fmt::format("{}/logs/{}.{}{}.log", path_, job.name, job.id, index);
}

void SubmissionFolder::make() const {
  for (const auto* folder : {"/scripts", "/logs"}) make_folders(path_ + folder);
}

FileLock SubmissionFolder::lock() const {
  FileLock lock(path_ + "/lock", FileLock::Mode::exclusive, FileLock::Wait::no);
  if (!lock.held())
    bad_input("{}: another 'qkscope submit' is at work here; wait until it ends", path_);
  return lock;
}

std::optional<Submission> SubmissionFolder::read() const {
  if (!path_exists(file())) return {};
  const Json json = load_json(file());
  try {
    Submission submission;
    submission.shards = json.at("shards");
    submission.complete = json.at("complete");
    for (const auto& job : json.at("jobs"))
      submission.jobs.push_back(
          {.name = job.at("name"), .id = job.at("id"), .tasks = job.at("tasks")});
    for (const auto& run : json.at("runs"))
      submission.runs.push_back(
          {.label = run.at("label"), .examples = run.at("examples"), .tokens = run.at("tokens")});
    return submission;
  } catch (const Json::exception& error) {
    bad_input("{}: not a list of jobs as 'qkscope submit' writes it: {}", file(), error.what());
  }
}

void SubmissionFolder::write(const Submission& submission) const {
  Json jobs = Json::array();
  for (const auto& job : submission.jobs)
    jobs.push_back({{"name", job.name}, {"id", job.id}, {"tasks", job.tasks}});
  Json runs = Json::array();
  for (const auto& run : submission.runs)
    runs.push_back({{"label", run.label}, {"examples", run.examples}, {"tokens", run.tokens}});
  const Json json = {{"shards", submission.shards},
                     {"complete", submission.complete},
                     {"jobs", jobs},
                     {"runs", runs}};
  write_file(file(), json.dump(1) + "\n");
}

}  // namespace qkscope
