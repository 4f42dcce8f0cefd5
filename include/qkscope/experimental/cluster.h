// Sweeps and captures on a cluster that runs Slurm: jobs that depend on each other, their
// submission, and how far a sweep is. docs/cluster.md tells it from the user's side.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "qkscope/capture.h"
#include "qkscope/experimental/study.h"
#include "qkscope/version.h"

namespace qkscope {

// How tasks call qkscope.
struct TaskProgram {
  std::string program;                 // its path, the same on every node
  std::vector<std::string> arguments;  // "sweep", the file, its options; each task adds its part
  std::string folder;                  // the working folder of tasks, absolute
};

// One script for sbatch.
struct ClusterJob {
  std::string name;                // "S1-40.capture", "tables"
  std::string script;              // its text
  std::int64_t tasks = 1;          // of its array
  std::vector<std::size_t> after;  // earlier jobs of the plan that end before it begins
  double flop = 0;                 // of one task; 0: not known, or next to nothing
  std::int64_t bytes = 0;          // that one task writes, before compression
};

struct ClusterPlan {
  std::string name;    // of the sweep or the capture
  std::string folder;  // for scripts, logs and what was submitted
  std::int64_t shards = 1;
  std::vector<ClusterJob> jobs;  // of what is left to do, in the order of submission
  std::vector<PlannedRun> runs;  // of a sweep
};

// For every run that is not finished: an array of tasks that capture its texts, a job that merges
// them (and captures what a dead task left), one that analyses; in the end one for tables and
// figures. A job begins when those before it have ended, however they did. Bad input: values that
// no #SBATCH line may hold, runs that cannot be planned, and shards of a run that was begun in
// another number of them.
QKSCOPE_API ClusterPlan plan_jobs(const Sweep& sweep, const SlurmOptions& slurm,
                                  const TaskProgram& program);

// The same for one capture: an array, and a job that merges.
QKSCOPE_API ClusterPlan plan_jobs(const CapturePlan& capture, const SlurmOptions& slurm,
                                  const TaskProgram& program);

struct SubmittedJob {
  std::string name;  // as in the plan
  std::string id;    // Slurm's
};

// Gives all jobs to Slurm, or none: they are held until the last one is accepted, and where one is
// refused, or `stop` becomes true, those before it are cancelled. Bad input where jobs of an
// earlier submission are still at work.
QKSCOPE_API std::vector<SubmittedJob> submit_jobs(const ClusterPlan& plan,
                                                  const std::atomic<bool>* stop = nullptr);

// ---- How far a sweep is.

struct ShardStatus {
  enum class State { waiting, running, unfinished, done };
  State state = State::waiting;
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  double tokens_per_second = 0;  // since its task began; 0: not known
  std::string slurm;             // what Slurm says: "RUNNING", "PENDING (Resources)"; "": nothing
};

struct RunStatus {
  std::string label;
  std::string state;                // "waiting", "capturing", "captured", "done", "failed"
  std::string error;                // of a failed one
  std::vector<ShardStatus> shards;  // of a run that is not captured
  std::int64_t examples = 0;        // in all shards
  std::int64_t tokens = 0;
  std::int64_t all_examples = 0;  // that it will have; 0: not known
  std::int64_t all_tokens = 0;
};

// A task that did not end well, and the line of its log that says why.
struct TaskProblem {
  std::string task;  // "S1-40.capture 3"
  std::string line;
  std::string log;  // the file
};

struct SweepStatus {
  std::string name;
  std::string folder;
  bool submitted = false;   // to Slurm, now or earlier
  std::string slurm;        // why Slurm could not be asked; "": it was, or there was nothing to ask
  std::int64_t queued = 0;  // tasks that wait
  std::int64_t running = 0;  // tasks at work
  std::vector<RunStatus> runs;
  std::vector<TaskProblem> problems;
  double tokens_per_second = 0;  // of all that are at work
  double seconds_left = 0;       // at that rate; 0: not known, or nothing is left

  QKSCOPE_API bool finished() const;  // every run is done
};
QKSCOPE_API const char* to_string(ShardStatus::State state);

// From the disk, and from squeue where jobs were submitted and it is there. How much a run will
// have is known from its submission, or else from a plan of the sweep.
QKSCOPE_API SweepStatus sweep_status(const Sweep& sweep, const std::vector<PlannedRun>& plan = {});

}  // namespace qkscope
