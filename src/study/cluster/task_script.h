// The script of one job, as text for sbatch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkscope/experimental/study.h"

namespace qkscope {

struct TaskScript {
  std::string job;     // its name in the queue
  std::string what;    // one sentence for whoever reads the script
  std::string folder;  // it works in; absolute
  std::string log;     // file, absolute; Slurm fills in its patterns
  std::vector<std::string> command;
  std::int64_t tasks = 1;        // above 1: an array, each task with --shard
  bool runs_model = false;       // and so needs the GPUs
  bool retries_failures = true;  // else only what was killed or stopped by a limit
};

std::string render_script(const TaskScript& task, const SlurmOptions& options);

// A word that the shell takes as it is.
std::string shell_word(const std::string& text);

// Seconds of a limit as Slurm writes it: "90" (minutes), "1:30:00", "1-12".
std::int64_t seconds_of_limit(const std::string& time);

}  // namespace qkscope
