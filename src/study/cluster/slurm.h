// Runs the Slurm commands sbatch, squeue, scontrol and scancel, and validates Slurm options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/yaml/yaml_config.h"
#include "qkscope/error.h"
#include "qkscope/experimental/study.h"

namespace qkscope {

// Reads the section `slurm` of a sweep file. Throws bad input with key, line and expected value.
SlurmOptions read_slurm(YamlSection section);

// Validates options that did not come from a sweep file. Throws bad input that names the option.
void check_slurm(const SlurmOptions& options);

// Makes an error from the last error line of a Slurm command: a failure if the controller cannot be
// reached, else bad input.
Error slurm_error(const std::string& what, const std::string& err);

// Submits a script with sbatch and returns the job id. The job starts after the jobs `after` have
// ended; a `held` job waits for release_jobs().
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
