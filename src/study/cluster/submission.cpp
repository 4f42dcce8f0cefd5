#include "study/cluster/submission.h"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/io/output_file.h"

namespace qkscope {
namespace {

constexpr std::size_t kTailBytes = 64 << 10;
constexpr std::string_view kMarks[] = {"error:", "CANCELLED", "oom-kill", "Killed", "requeued, "};

// Slurm prints this line when a script requeues itself; the script's own line is more specific.
constexpr std::string_view kRequeued = "DUE TO JOB REQUEUE";

bool is_error_line(std::string_view line) {
  if (line.find(kRequeued) != std::string_view::npos) return false;
  return std::ranges::any_of(
      kMarks, [&](std::string_view mark) { return line.find(mark) != std::string_view::npos; });
}

}  // namespace

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

std::string error_line(std::string_view text) {
  std::string last;
  std::string error;
  for (const auto& line : split(text, '\n')) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    last = line;
    if (is_error_line(line)) error = line;
  }
  return printable(error.empty() ? last : error);
}

std::string error_line_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const auto size = static_cast<std::size_t>(in.tellg());
  std::string text(std::min(size, kTailBytes), '\0');
  in.seekg(static_cast<std::streamoff>(size - text.size()));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return error_line(text);
}

}  // namespace qkscope
