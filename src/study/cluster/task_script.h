// Batch scripts for sbatch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkscope/experimental/study.h"

namespace qkscope {

struct TaskScript {
  std::string job;     // job name in the queue
  std::string what;    // sentence for the comment at the top of the script
  std::string folder;  // working folder, absolute
  std::string log;     // absolute path with Slurm's filename patterns
  std::vector<std::string> command;
  std::int64_t tasks = 1;        // above 1: an array, each task with --shard
  bool runs_model = false;       // requests GPUs
  bool retries_failures = true;  // false: retry only after a kill or the time limit
};

// Returns the text of the batch script.
std::string render_script(const TaskScript& task, const SlurmOptions& options);

// Quotes a word for the shell if necessary.
std::string shell_word(const std::string& text);

// Returns the seconds of a Slurm time limit: "90" (minutes), "1:30:00", "1-12" (days-hours).
std::int64_t seconds_of_limit(const std::string& time);

}  // namespace qkscope
