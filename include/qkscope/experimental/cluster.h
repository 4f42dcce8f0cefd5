// Sweeps and captures on a Slurm cluster: job planning, submission and status.
// docs/how-to/cluster.md is the user guide.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "qkscope/capture.h"
#include "qkscope/experimental/study.h"
#include "qkscope/version.h"

namespace qkscope {

// Program, arguments and working folder of the Slurm tasks that run qkscope.
struct TaskProgram {
  std::string program;                 // path of the program, the same on every node
  std::vector<std::string> arguments;  // "sweep", the file and options; tasks append their part
  std::string folder;                  // working folder of tasks, absolute
};

// One Slurm job.
struct ClusterJob {
  std::string name;                     // "S1-40.capture", "tables"
  std::string script = {};              // text of the batch script
  std::int64_t tasks = 1;               // size of the job array
  std::vector<std::size_t> after = {};  // indices of jobs in the plan that must end first
  double flop = 0;         // floating-point operations per task; 0: unknown or negligible
  std::int64_t bytes = 0;  // output per task before compression
};

// Jobs for the unfinished work of a sweep or capture.
struct ClusterPlan {
  std::string name;    // name of the sweep or capture
  std::string folder;  // scripts, logs and the record of the submission
  std::int64_t shards = 1;
  std::vector<ClusterJob> jobs;  // in submission order
  std::vector<PlannedRun> runs;  // empty for a single capture
};

// Plans the jobs of a sweep. Each unfinished run gets a job array that captures its texts, a job
// that merges the shards (and captures the shards of failed tasks) and a job that analyses; a final
// job makes tables and figures. A job starts when its predecessors have ended, successfully or not.
// Throws a bad-input error for values that are invalid on an #SBATCH line, for runs that cannot be
// planned, and for a run that was started with another number of shards.
QKSCOPE_API ClusterPlan plan_jobs(const Sweep& sweep, const SlurmOptions& slurm,
                                  const TaskProgram& program);

// Plans the jobs of one capture: a job array and a merge job.
QKSCOPE_API ClusterPlan plan_jobs(const CapturePlan& capture, const SlurmOptions& slurm,
                                  const TaskProgram& program);

// A job accepted by Slurm.
struct SubmittedJob {
  std::string name;  // name in the plan
  std::string id;    // Slurm job id
  std::int64_t tasks = 1;
};

// Submits all jobs or none: jobs are held until the last one is accepted, and cancelled if one is
// refused or `stop` becomes true. Throws a bad-input error if jobs of an earlier submission are
// queued.
QKSCOPE_API std::vector<SubmittedJob> submit_jobs(const ClusterPlan& plan,
                                                  const std::atomic<bool>* stop = nullptr);

// Progress of one shard of a run.
struct ShardStatus {
  enum class State { waiting, running, unfinished, done };
  State state = State::waiting;
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  double tokens_per_second = 0;  // since the start of its task; 0: unknown
  std::string slurm;             // state in Slurm: "RUNNING", "PENDING (Resources)"; "": not queued
};

// Progress of one run.
struct RunStatus {
  std::string label;
  std::string state;                // "waiting", "capturing", "captured", "done", "failed"
  std::string error;                // reason of a failure
  std::vector<ShardStatus> shards;  // empty for a captured run
  std::int64_t examples = 0;        // sum over shards
  std::int64_t tokens = 0;
  std::int64_t all_examples = 0;  // planned total; 0: unknown
  std::int64_t all_tokens = 0;
};

// A failed task and the log line that states the reason.
struct TaskProblem {
  std::string task;  // "S1-40.capture 3"
  std::string line;
  std::string log;  // path of the log
};

// Progress of a sweep.
struct SweepStatus {
  std::string name;
  std::string folder;
  bool submitted = false;    // a submission to Slurm exists
  std::string slurm;         // why Slurm could not be queried; "": no error
  std::int64_t queued = 0;   // pending tasks
  std::int64_t running = 0;  // running tasks
  std::vector<RunStatus> runs;
  std::vector<TaskProblem> problems;
  double tokens_per_second = 0;  // sum over running shards
  double seconds_left = 0;       // at this rate; 0: unknown or finished

  QKSCOPE_API bool finished() const;  // true if every run is done
};
// Returns the state as text: "waiting", "running", "unfinished" or "done".
QKSCOPE_API const char* to_string(ShardStatus::State state);

// Determines the status of a sweep from its files, and from squeue if jobs were submitted. Planned
// totals come from the record of the submission, or from `plan` if there is none.
QKSCOPE_API SweepStatus sweep_status(const Sweep& sweep, const std::vector<PlannedRun>& plan = {});

}  // namespace qkscope
