// Studies over many checkpoints: sweeps that capture and analyse a list of checkpoints, comparison
// with published numbers, and statistics over several analyses.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkscope/capture.h"
#include "qkscope/captures.h"
#include "qkscope/error.h"
#include "qkscope/tables.h"
#include "qkscope/version.h"

namespace qkscope {

// The YAML file of a sweep, described in docs/how-to/sweep.md, and overrides of its settings.
struct SweepSource {
  std::string file;  // YAML
  std::vector<std::string>
      overrides;  // KEY=VALUE, applied to the capture configuration of each run
  // Relative paths of datasets, checkpoints and tokenizers are looked up in this folder first. If
  // empty, the sweep file may set the folder (data_folder).
  std::string data_folder;
  ComputeOptions compute = {};  // override the compute options of the file and configurations
  // Override the checkpoint selection of the `checkpoints` section: every n-th checkpoint, or at
  // most `log` per phase, evenly spaced in log(step). 0: as in the file.
  std::int64_t every = 0;
  std::int64_t log = 0;
};

// Returns the sweep over the small demo model. Throws a bad-input error, with the folders searched,
// if the demo data is not installed.
QKSCOPE_API SweepSource demo_sweep();

enum class RunState { pending, done, failed };
// Returns "pending", "done" or "failed".
QKSCOPE_API std::string to_string(RunState state);

// One run of a sweep and its state on disk.
struct RunEntry {
  std::string label;  // also the folder name of the run
  std::string phase;  // training phase; may be empty
  std::int64_t order = 0;
  RunState state = RunState::pending;
  std::string error;  // reason of a failure
};

// Progress of a run and the estimated cost of its remaining work.
struct PlannedRun {
  struct Capture {
    std::int64_t examples = 0;
    std::int64_t tokens = 0;
    std::int64_t files = 0;  // files of heads
    std::int64_t rows = 0;   // exact number of rows over all heads
    std::int64_t bytes = 0;  // size of the rows before compression
    double flop = 0;         // floating-point operations of the forward passes
  };
  struct Statistics {
    std::int64_t examples = 0;
    std::int64_t tokens = 0;
    bool beside = false;  // share the forward passes of the capture
    double flop = 0;      // floating-point operations, without shared forward passes
  };
  std::string label;
  bool captured = false;
  bool measured = false;  // statistics are complete or not requested
  bool analysed = false;
  std::optional<Capture> capture;        // nullopt: nothing left to capture
  std::optional<Statistics> statistics;  // nullopt: no statistics left to compute
  std::uint64_t weights = 0;             // bytes of the checkpoint; 0 if no longer needed
  std::uint64_t to_download = 0;  // bytes to download that no earlier run of the plan downloads
  // Peak disk space of downloaded weights during this run, in bytes, including prefetched weights.
  std::uint64_t weights_on_disk = 0;
  std::string publish;     // target "org/name@branch"; "": not published
  bool published = false;  // the target is up to date
  std::string error;       // why the run could not be planned
  ErrorKind error_kind = ErrorKind::bad_input;
};

// Part of a sweep that one cluster task executes. The parts of one run depend on each other in the
// order capture, merge, analyse; different runs are independent.
enum class SweepPart {
  all,      // everything, in one process
  capture,  // one shard of the texts of each chosen run
  merge,    // unfinished shards, then merging into the files of capture and statistics
  analyse,  // analysis of the capture
  tables,   // combined tables of all finished runs
};
// Parses "capture", "merge", "analyse", "tables" or "" (all). Throws a bad-input error that names
// `what`.
QKSCOPE_API SweepPart parse_sweep_part(std::string_view name, std::string_view what);

struct SweepOptions {
  std::vector<std::string> only;  // labels of runs; empty: all
  Shard shard;                    // selects every n-th run
  SweepPart part = SweepPart::all;
  Shard texts = {};        // shard of the texts to capture, or number of shards to merge
  int jobs = 1;            // number of parallel runs, which share the thread pool
  bool overwrite = false;  // replace captures made with another configuration
  bool evict = false;      // delete weights from the Hub cache after their last run; ignored unless
                           // `part` is SweepPart::all
  bool publish = true;     // publish captures if the sweep file has a section `publish`
  bool quiet = false;      // no progress messages
  bool compact = false;    // progress counts runs instead of examples and heads
  const std::atomic<bool>* stop = nullptr;  // true stops the sweep; the next run resumes it
};

// Outcome of one run of a sweep.
struct RunReport {
  enum class Outcome {
    done,
    already_done,
    failed,
    elsewhere,    // another process is working on the run
    interrupted,  // stopped, or not started before the stop
    unfinished,   // not part of the combined tables
  };
  std::string label;
  Outcome outcome = Outcome::interrupted;
  std::string error;  // reason of a failure
  ErrorKind error_kind = ErrorKind::failure;

  // A failed publication does not fail the run; the next sweep retries it.
  enum class Publication { none, published, already_published, failed };
  Publication publication = Publication::none;
  std::string publish_error;
  ErrorKind publish_error_kind = ErrorKind::failure;
};

// Means over the heads of one run.
struct OverviewRow {
  std::string label;
  std::string phase;
  std::int64_t order = 0;
  std::string layers;  // "all", "rope", "nope" or "unknown"
  std::int64_t heads = 0;
  std::map<std::string, double> values;  // by measure; missing measures have no entry

  QKSCOPE_API double value(const std::string& measure) const;  // NaN if missing
};

// Returns the names of the measures in the column order of overview.csv: "r_q", "r_k", ...
QKSCOPE_API const std::vector<std::string>& overview_measures();

// Slurm resources of the tasks of a sweep: the section `slurm` of its file, used by
// qkscope/experimental/cluster.h. "" and 0 mean the defaults of the cluster.
struct SlurmOptions {
  std::int64_t shards = 1;       // number of tasks that share the texts of a checkpoint
  std::int64_t array_limit = 0;  // parallel tasks of one checkpoint; 0: no limit
  std::string partition = {};
  std::string account = {};
  std::string gpus = {};     // per task that runs a model: "1", "h100:1"
  std::int64_t cpus = 0;     // per task
  std::string time = {};     // time limit of a task: minutes, HH:MM:SS or DAYS-HH:MM:SS
  std::string memory = {};   // per task: "64G"
  std::int64_t retries = 3;  // per task, after a kill, a failure or the time limit
  std::vector<std::string> environment = {};  // lines of shell code: "module load cuda"
};

// A sweep: the same capture and analysis for each checkpoint of a list.
class QKSCOPE_API Sweep {
 public:
  // Reads a sweep file. The sweep writes to RESULTS/NAME; `results` is a folder or an object store
  // address (qkscope/experimental/store.h), from which any machine can resume the sweep. Throws a
  // bad-input error with file, line and expected value.
  static Sweep read(const SweepSource& source, const std::string& results = "results");
  ~Sweep();
  Sweep(Sweep&&) noexcept;
  Sweep& operator=(Sweep&&) noexcept;

  const std::string& name() const;
  const std::string& folder() const;  // RESULTS/NAME, or the local working folder of an address
  const std::string& place() const;   // RESULTS/NAME as a folder or an address
  const SlurmOptions& slurm() const;  // section `slurm` of the file

  std::vector<RunEntry> runs() const;  // sorted by order

  // Returns what run() would do with these options. Writes nothing and reads no weights.
  std::vector<PlannedRun> plan(const SweepOptions& options = {}) const;

  // Captures, analyses and publishes the chosen runs that are not finished, then writes runs.json
  // and the combined tables. A failed run does not stop the others; without a Hub token nothing is
  // published. Returns one report per chosen run. Unfinished shards of cluster tasks are resumed.
  // Several processes may run the same sweep at once and share the work.
  std::vector<RunReport> run(const SweepOptions& options = {}) const;

  // Uploads folder()/figures for a sweep in an object store. Returns false if another machine has
  // uploaded its tables in the meantime: the tables are then merged, and the figures must be
  // redrawn.
  bool put_figures(bool quiet = false) const;

  // Returns means over heads for every finished run: one row for all layers, and separate rows for
  // RoPE and NoPE layers if the run has both.
  std::vector<OverviewRow> overview() const;

  struct State;  // internal
  const State& state() const { return *state_; }

 private:
  explicit Sweep(std::unique_ptr<const State> state);

  std::unique_ptr<const State> state_;
};

// Reads the overview (means over heads of each run) from the folder of a sweep, RESULTS/NAME. The
// sweep file is not needed.
QKSCOPE_API std::vector<OverviewRow> read_overview(const std::string& sweep_folder);

// A checkpoint that a repository stores as a branch.
struct CheckpointBranch {
  std::string branch;                // "stage1-step-40000"
  std::string phase;                 // prefix before the step: "stage1"; may be empty
  std::optional<std::int64_t> step;  // nullopt for a name without a step ("main")
  std::string label;                 // short folder name: "S1-40K"
};

// Selection of branches.
struct BranchChoice {
  std::vector<std::string> match;  // globs; empty: every branch with a step in its name
  std::int64_t every = 1;          // every n-th branch, and the last
  std::int64_t log = 0;            // at most this many per phase, evenly in log(step); 0: no limit
};

// Returns the selected branches, sorted by phase (pre-training first, natural order) and step.
QKSCOPE_API std::vector<CheckpointBranch> checkpoint_branches(const std::vector<std::string>& names,
                                                              const BranchChoice& choice = {});

// Input of write_branch_sweep().
struct BranchSweep {
  std::string repository;  // "org/name"
  std::string config;      // capture configuration; model.name is replaced by the repository
  std::vector<CheckpointBranch> branches;
};

// Writes a sweep file with one run per branch, replacing an existing file. The sweep is named after
// the file.
QKSCOPE_API void write_branch_sweep(const BranchSweep& sweep, const std::string& file);

// Returns the names of the installed sets of published numbers: "smollm3", "models", ...
QKSCOPE_API std::vector<std::string> published_sets();

// Options of compare_with_published().
struct CompareOptions {
  std::string published = "smollm3";  // name of a set, or path of a CSV file
  std::vector<std::string> only;      // labels of runs; empty: all finished runs
  // Published checkpoint to compare a single run with; "" matches runs by label. Numbers pooled
  // over models require the published scope (what was pooled), such as "11 models, 3239 heads".
  std::string as;
  bool every_source = false;  // include sources that are not preferred
};

// Compares a sweep (RESULTS/NAME) or the results of one analysis with published numbers. Returns
// one row per number: measure, checkpoint, model (our run or ""), published, ours, difference,
// se_published (rounding and reading of figures), se_ours (standard error over texts), se (of the
// difference), z (difference / se), our_column, kind, source, note (why our number is missing).
// Unknown values are NaN. Runs are matched by label; if no label matches, a sweep with the same
// number of checkpoints is matched by order, with a warning.
QKSCOPE_API Table compare_with_published(const std::string& results,
                                         const CompareOptions& options = {});

// Compares two sweeps or two results: measure, model_a, model_b, a, b, difference (b - a), se_a,
// se_b, se, z. Runs are matched by label, or one to one if each side has a single run; runs without
// a partner are logged.
QKSCOPE_API Table compare_runs(const std::string& a, const std::string& b);

// One table of combine_sweeps().
struct CombinedTable {
  std::string name;         // file name without extension
  std::int64_t sweeps = 0;  // number of sweeps with this table
  std::int64_t rows = 0;
};

// Concatenates the Parquet tables of sweeps (RESULTS/NAME or NAME=RESULTS/NAME) in the folder
// `out`: the column sweep, then the columns of all sweeps, null for columns that a sweep does not
// have. The table `runs` lists the checkpoint and step of every run. Throws a bad-input error for
// two sweeps of the same name and for a column with different types.
QKSCOPE_API std::vector<CombinedTable> combine_sweeps(const std::vector<std::string>& sweeps,
                                                      const std::string& out);

// Options of pool_results().
struct PoolOptions {
  std::vector<std::string> results;  // folders of analyses or sweeps (RESULTS/NAME)
  int depth_bins = 10;               // bins of layer / last layer
  std::vector<std::pair<std::string, std::string>> pairs;  // quantities to correlate over heads
  // CSV file of benchmark scores: long format with columns metric and value (optionally benchmark,
  // mode, length_tokens), or one column per score. Empty: no scores.
  std::string scores;
  std::string by = "model";  // column of `scores` with the labels of our runs
};

// Result of pool_results().
struct PooledTables {
  Table pooled;  // model ("all": all runs), heads, quantity, n_heads, mean, median, std, min, max
  Table depth;   // model, quantity, bin, depth_low, depth_high, n_heads, mean, median
  Table correlations;  // over heads: model, x, y, n_heads, pearson, pearson_p, spearman, spearman_p
  // Correlation over runs of each overview measure with each score: score, measure, n_models,
  // pearson, pearson_p, spearman, spearman_p. Empty without scores.
  Table scores;
};

// Computes statistics over the heads of each run, and over the heads of all runs, equally weighted.
QKSCOPE_API PooledTables pool_results(const PoolOptions& options);

}  // namespace qkscope
