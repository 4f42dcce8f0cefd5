// Slurm: validation of options, batch scripts, and the commands sbatch, squeue, scontrol and
// scancel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/yaml/yaml_config.h"
#include "qkscope/experimental/study.h"

namespace qkscope {

// Reads the section `slurm` of a sweep file. Throws a bad-input error with key, line and expected
// value.
SlurmOptions read_slurm_options(YamlSection section);

// Validates options that did not come from a sweep file. Throws a bad-input error that names the
// option.
void check_slurm_options(const SlurmOptions& options);

// Contents of a batch script.
struct TaskScript {
  std::string job = {};     // job name in the queue
  std::string what = {};    // sentence for the comment at the top of the script
  std::string folder = {};  // working folder, absolute
  std::string log = {};     // absolute path with Slurm's filename patterns
  std::vector<std::string> command = {};
  std::int64_t tasks = 1;        // above 1: an array, each task with --shard
  bool runs_model = false;       // requests GPUs
  bool retries_failures = true;  // false: retry only after a kill or the time limit
};

// Returns the text of a batch script for sbatch.
std::string render_batch_script(const TaskScript& task, const SlurmOptions& options);

// Quotes a word for the shell if necessary.
std::string quote_for_shell(const std::string& text);

// Returns the seconds of a Slurm time limit: "90" (minutes), "1:30:00", "1-12" (days-hours).
std::int64_t parse_time_limit(const std::string& time);

// Submits a script with sbatch and returns the job id. The job starts after the jobs `after` have
// ended; a `held` job waits for release_jobs(). Throws a failure error if the Slurm controller
// cannot be reached, and a bad-input error if Slurm refuses the job.
std::string submit_script(const std::string& file, const std::vector<std::string>& after,
                          bool held);

void release_jobs(const std::vector<std::string>& ids);
void cancel_jobs(const std::vector<std::string>& ids);

// A task in the queue, pending or running.
struct QueuedTask {
  std::string job;         // id of the job or job array
  std::int64_t index = 0;  // array index; 0 for a job without an array
  std::string state;       // as squeue prints it: "RUNNING"
  std::string reason;      // why the task is pending, for example "Resources"; "" if unknown
};
// Returns the queued tasks that belong to these jobs.
std::vector<QueuedTask> queued_tasks(const std::vector<std::string>& jobs);

}  // namespace qkscope
