// Slurm's own programs, and what they say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkscope/error.h"

namespace qkscope {

// Why sbatch, squeue or another refused: its last line of error, as bad input where the user can
// change it, and as a failure where the controller cannot be reached.
Error slurm_error(const std::string& what, const std::string& err);

// Gives a script to Slurm and returns the job's id. `after`: ids of jobs that end first. `held`: it
// waits until it is released.
std::string submit_script(const std::string& file, const std::vector<std::string>& after,
                          bool held);

// All at once.
void release_jobs(const std::vector<std::string>& ids);
void cancel_jobs(const std::vector<std::string>& ids);

// A task that waits or is at work.
struct QueuedTask {
  std::string job;         // id of the job, or of its array
  std::int64_t index = 0;  // in the array; 0 where there is none
  std::string state;       // "RUNNING"
  std::string reason;      // why it waits: "Resources"; "" where nothing is said
};
// The tasks in the queue that belong to these jobs.
std::vector<QueuedTask> queued_tasks(const std::vector<std::string>& jobs);

}  // namespace qkscope
