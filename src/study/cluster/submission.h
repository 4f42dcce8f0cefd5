// What was given to Slurm, kept beside the results.
//
//   FOLDER/submission.json    the jobs with their ids
//   FOLDER/scripts/NAME.sh    one for each job
//   FOLDER/logs/NAME.ID.log   what its tasks printed; NAME.ID_INDEX.log of an array
//   FOLDER/lock               while jobs are being submitted
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/io/file_lock.h"

namespace qkscope {

struct SubmissionJob {
  std::string name;
  std::string id;  // Slurm's
  std::int64_t tasks = 1;
};

struct Submission {
  // What a run of the sweep will give; decides how much is left.
  struct Run {
    std::string label;
    std::int64_t examples = 0;
    std::int64_t tokens = 0;
  };
  std::int64_t shards = 1;
  bool complete = false;  // false: broken off; its jobs are held and will never start
  std::vector<SubmissionJob> jobs;
  std::vector<Run> runs;

  std::vector<std::string> ids() const;
};

class SubmissionFolder {
 public:
  explicit SubmissionFolder(std::string path) : path_(std::move(path)) {}

  std::string script(const std::string& job) const { return path_ + "/scripts/" + job + ".sh"; }
  // With Slurm's patterns for the id and the number of a task.
  std::string log_pattern(const std::string& job, bool array) const;
  std::string log(const SubmissionJob& job, std::int64_t task) const;

  void make() const;
  FileLock lock() const;

  // Nothing where nothing was submitted. A file that is not one of ours is bad input.
  std::optional<Submission> read() const;
  void write(const Submission& submission) const;

 private:
  std::string file() const { return path_ + "/submission.json"; }

  std::string path_;
};

}  // namespace qkscope
