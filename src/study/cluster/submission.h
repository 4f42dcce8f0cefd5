// The record of a submission to Slurm, stored beside the results.
//
//   FOLDER/submission.json    jobs with their Slurm ids
//   FOLDER/scripts/NAME.sh    one script per job
//   FOLDER/logs/NAME.ID.log   output of a job; NAME.ID_INDEX.log for a task of an array
//   FOLDER/lock               held while jobs are being submitted
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/io/output_file.h"
#include "qkscope/experimental/study.h"

namespace qkscope {

struct SubmissionJob {
  std::string name;
  std::string id;  // Slurm job id
  std::int64_t tasks = 1;
};

// Planned size of a run, for progress estimates.
struct PlannedRunSize {
  std::string label;
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
};
// Returns the size of the capture, else of the statistics; 0 if the run needs neither.
PlannedRunSize planned_size(const PlannedRun& run);

struct Submission {
  std::int64_t shards = 1;
  bool complete = false;  // false: interrupted; its jobs are held and never start
  std::vector<SubmissionJob> jobs;
  std::vector<PlannedRunSize> runs;

  std::vector<std::string> job_ids() const;
};

class SubmissionFolder {
 public:
  explicit SubmissionFolder(std::string path) : path_(std::move(path)) {}

  std::string script_path(const std::string& job) const {
    return path_ + "/scripts/" + job + ".sh";
  }
  // Path of the log with Slurm's filename patterns for job id and array index.
  std::string log_path_pattern(const std::string& job, bool array) const;
  std::string log_path(const SubmissionJob& job, std::int64_t task) const;

  void create() const;
  // Throws a bad-input error if another submission holds the lock.
  FileLock lock() const;

  // Returns the last submission, or nullopt if there is none. Throws a bad-input error for a
  // damaged file.
  std::optional<Submission> read() const;
  void write(const Submission& submission) const;

 private:
  std::string submission_file() const { return path_ + "/submission.json"; }

  std::string path_;
};

// Returns the line of a log that tells why a task failed: the last line with an error of qkscope,
// of the script or of Slurm, else the last line that is not blank.
std::string find_error_line(std::string_view log);

// Returns the error line at the end of a log file; "" if the file does not exist or is empty.
std::string read_error_line(const std::string& file);

}  // namespace qkscope
