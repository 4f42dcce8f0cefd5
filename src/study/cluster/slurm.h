// Slurm: options, batch scripts, sbatch, squeue, scontrol, scancel, and the record of a submission.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/io/output_file.h"
#include "base/yaml/yaml_config.h"
#include "qkscope/experimental/cluster.h"
#include "qkscope/experimental/study.h"

namespace qkscope {

// Reads the section `slurm` of a sweep file. Throws a bad-input error with key and line.
SlurmOptions read_slurm_options(YamlSection section);

// Validates options, including command-line overrides. A bad-input error names the invalid option.
void check_slurm_options(const SlurmOptions& options);

struct BatchScript {
  std::string job = {};     // job name in the queue
  std::string what = {};    // sentence for the comment at the top of the script
  std::string folder = {};  // working folder, absolute
  std::string log = {};     // absolute path with Slurm's filename patterns
  std::vector<std::string> command = {};
  std::int64_t tasks = 1;        // above 1: an array, each task with --shard
  bool runs_model = false;       // the task needs GPUs
  bool retries_failures = true;  // false: retry only after a kill or the time limit
};

std::string render_batch_script(const BatchScript& task, const SlurmOptions& options);

// Returns the seconds of a Slurm time limit: "90" (minutes), "1:30:00", "1-12" (days-hours).
std::int64_t parse_time_limit_seconds(const std::string& time);

// A pending or running Slurm task.
struct QueuedTask {
  std::string job;         // id of the job or job array
  std::int64_t index = 0;  // array index; 0 for a job without an array
  std::string state;       // as squeue prints it: "RUNNING"
  std::string reason;      // why the task is pending, for example "Resources"; "" if unknown
};
std::vector<QueuedTask> list_queued_tasks(const std::vector<std::string>& jobs);

// Planned size of a run, from which progress and remaining time are estimated.
struct PlannedRunSize {
  std::string label;
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
};
// Returns the size of a run's capture or, if it needs none, of its statistics; 0 if neither.
PlannedRunSize planned_run_size(const PlannedRun& run);

struct SlurmSubmission {
  std::int64_t shards = 1;
  bool complete = false;  // false: interrupted; its jobs are held and never start
  std::vector<SubmittedJob> jobs;
  std::vector<PlannedRunSize> runs;

  std::vector<std::string> job_ids() const;
};

// The record of a submission, stored beside the results.
//
//   FOLDER/submission.json    jobs with their Slurm ids
//   FOLDER/scripts/NAME.sh    one script per job
//   FOLDER/logs/NAME.ID.log   output of a job; NAME.ID_INDEX.log for a task of an array
//   FOLDER/lock               held while jobs are being submitted
class SubmissionFolder {
 public:
  explicit SubmissionFolder(std::string path) : path_(std::move(path)) {}

  std::string script_path(const std::string& job) const {
    return path_ + "/scripts/" + job + ".sh";
  }
  // Path of the log with Slurm's filename patterns for job id and array index.
  std::string log_path_pattern(const std::string& job, bool array) const;
  std::string log_path(const SubmittedJob& job, std::int64_t task) const;

  void create() const;
  // Throws a bad-input error if another submission holds the lock.
  FileLock lock() const;

  // Returns the last submission or nullopt. Throws a bad-input error for a damaged file.
  std::optional<SlurmSubmission> read_submission() const;
  void write_submission(const SlurmSubmission& submission) const;

 private:
  std::string submission_file() const { return path_ + "/submission.json"; }

  std::string path_;
};

// Returns the log line that says why a task failed: the last error line of qkscope, the script or
// Slurm, or the last non-blank line if there is no error line.
std::string find_error_line(std::string_view log);

// Returns the error line at the end of a log file; "" if the file does not exist or is empty.
std::string read_error_line(const std::string& file);

}  // namespace qkscope
