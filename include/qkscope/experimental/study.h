// Studies over many checkpoints: a sweep captures and analyses a list of them, and its means stand
// beside published ones.
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

// What a sweep is read from. docs/sweep.md describes the file.
struct SweepSource {
  std::string file;                    // YAML
  std::vector<std::string> overrides;  // KEY=VALUE for the capture configuration of every run
  // Relative paths of datasets, checkpoints and tokenizers that exist under this folder are taken
  // from there; "": the file's own data_folder, where it has one.
  std::string data_folder;
  ComputeOptions compute = {};  // how the models run, in place of what file and configurations say
  // Which of the checkpoints that the file gives by a rule, in place of what it says: every n-th,
  // or at most so many of each phase, evenly in the logarithm of the step. 0: what the file says.
  std::int64_t every = 0;
  std::int64_t log = 0;
};

// The sweep over the small model that comes with qkscope. Bad input where its data is not
// installed; the message says where it was looked for.
QKSCOPE_API SweepSource demo_sweep();

enum class RunState { pending, done, failed };
QKSCOPE_API std::string to_string(RunState state);

// One run, and how far the disk says it is.
struct RunEntry {
  std::string label;  // also the name of its folders
  std::string phase;  // of the training; "" where the sweep has none
  std::int64_t order = 0;
  RunState state = RunState::pending;
  std::string error;  // of a failed one
};

// What is done of a run, and what its capture would give.
struct PlannedRun {
  struct Capture {
    std::int64_t examples = 0;
    std::int64_t tokens = 0;
    std::int64_t files = 0;  // head files
    std::int64_t rows = 0;   // over all heads, exact
    std::int64_t bytes = 0;  // of those rows before compression
    double flop = 0;         // of the forward passes
  };
  struct Statistics {
    std::int64_t examples = 0;
    std::int64_t tokens = 0;
    bool beside = false;  // the capture's forward passes give them too
    double flop = 0;      // of forward passes of their own, and of the statistics
  };
  std::string label;
  bool captured = false;
  bool measured = false;  // its statistics, where the sweep asks for them
  bool analysed = false;
  std::optional<Capture> capture;        // of a run that is still to capture
  std::optional<Statistics> statistics;  // of a run whose statistics are still to be made
  // Of the checkpoint, where the run still needs it.
  std::uint64_t weights = 0;      // bytes
  std::uint64_t to_download = 0;  // bytes of them that are not on this machine; 0 where an earlier
                                  // run of the plan has them downloaded
  // Bytes of downloaded weights of the plan's checkpoints while this run is at work, those that are
  // fetched for the next run counted in.
  std::uint64_t weights_on_disk = 0;
  std::string publish;     // "org/name@branch" it goes to; "": nowhere
  bool published = false;  // it is there
  std::string error;       // why it could not be planned
  ErrorKind error_kind = ErrorKind::bad_input;
};

// The part of a sweep that one task of a cluster does. Parts of several runs go side by side; one
// run is captured, merged and analysed in this order.
enum class SweepPart {
  all,      // as on one machine
  capture,  // one shard of the texts of each chosen run
  merge,    // the shards that no task has finished, then the files of capture and statistics
  analyse,  // what is captured
  tables,   // of all finished runs
};
// "capture", "merge", "analyse" or "tables"; "": all. `what` names the option.
QKSCOPE_API SweepPart parse_sweep_part(std::string_view name, std::string_view what);

struct SweepOptions {
  std::vector<std::string> only;  // labels; none: every run
  Shard shard;                    // every n-th run
  SweepPart part = SweepPart::all;
  Shard texts = {};        // of every run: the one to capture, or how many to merge
  int jobs = 1;            // runs at a time; they share the threads
  bool overwrite = false;  // replaces captures made with another configuration
  // Weights leave the Hub's cache after their last run. Not where a run is done in parts: others
  // need them.
  bool evict = false;
  bool publish = true;                      // where the sweep's file says so
  bool quiet = false;                       // no progress
  bool compact = false;                     // progress counts runs, not examples and heads
  const std::atomic<bool>* stop = nullptr;  // ends the sweep soon; running it again continues
};

// How a run went.
struct RunReport {
  enum class Outcome {
    done,
    already_done,
    failed,
    elsewhere,    // another process is at it
    interrupted,  // or not begun before the stop
    unfinished,   // the tables are made without it
  };
  std::string label;
  Outcome outcome = Outcome::interrupted;
  std::string error;  // of a failed one
  ErrorKind error_kind = ErrorKind::failure;

  // A run whose capture could not be published is done all the same; the next sweep tries it again.
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
  std::string layers;  // which: "all", "rope", "nope" or "unknown"
  std::int64_t heads = 0;
  std::map<std::string, double> values;  // by measure; what the run did not measure is missing

  QKSCOPE_API double value(const std::string& measure) const;  // NaN where it is missing
};

// Names of the measures, in the order of the columns of overview.csv: "r_q", "r_k", ...
QKSCOPE_API const std::vector<std::string>& overview_measures();

// What the tasks of a sweep ask Slurm for: the section `slurm` of its file
// (qkscope/experimental/cluster.h submits with them). "" and 0: what the cluster gives.
struct SlurmOptions {
  std::int64_t shards = 1;       // the texts of every checkpoint are dealt to so many tasks
  std::int64_t array_limit = 0;  // tasks of one checkpoint at a time; 0: all
  std::string partition = {};
  std::string account = {};
  std::string gpus = {};     // of a task that runs a model: "1", "h100:1"
  std::int64_t cpus = 0;     // of a task
  std::string time = {};     // of a task: minutes, HH:MM:SS or DAYS-HH:MM:SS
  std::string memory = {};   // of a task: "64G"
  std::int64_t retries = 3;  // of a task that was killed, failed or came to its time limit
  std::vector<std::string> environment = {};  // lines of shell: "module load cuda"
};

// The same capture and analysis over a list of checkpoints.
class QKSCOPE_API Sweep {
 public:
  // The sweep works in a folder of its name below `results`, which may be an address of an object
  // store (qkscope/experimental/store.h): then any machine continues it. Bad input names the file,
  // the line and what was expected.
  static Sweep read(const SweepSource& source, const std::string& results = "results");
  ~Sweep();
  Sweep(Sweep&&) noexcept;
  Sweep& operator=(Sweep&&) noexcept;

  const std::string& name() const;
  const std::string& folder()
      const;  // RESULTS/NAME; of an address, the folder that it works in here
  const std::string& place() const;   // RESULTS/NAME, be it a folder or an address
  const SlurmOptions& slurm() const;  // of the file

  std::vector<RunEntry> runs() const;  // by order

  // What run() would do with these options: nothing is written and no weights are read.
  std::vector<PlannedRun> plan(const SweepOptions& options = {}) const;

  // Captures, analyses and publishes (where the file says so) what is not yet; one failure does not
  // stop the others. Without a token nothing is published, with a warning. At the end the folder
  // holds runs.json and the tables of all finished runs. One report for each chosen run, in their
  // order. Shards that tasks of a cluster began are continued. Several processes may run the same
  // sweep at once and share the work.
  std::vector<RunReport> run(const SweepOptions& options = {}) const;

  // After figures were drawn into folder()/figures: puts them where the results are an address.
  // False where another machine put its tables meanwhile; then those of both are there now, and the
  // figures are to be drawn again.
  bool put_figures(bool quiet = false) const;

  // Of the finished runs: for each, all layers, then those with and without RoPE where it has both.
  std::vector<OverviewRow> overview() const;

  struct State;  // the library's own
  const State& state() const { return *state_; }

 private:
  explicit Sweep(std::unique_ptr<const State> state);

  std::unique_ptr<const State> state_;
};

// The same from the folder of a sweep (RESULTS/NAME) alone.
QKSCOPE_API std::vector<OverviewRow> read_overview(const std::string& sweep_folder);

// ---- Checkpoints that a repository keeps as branches ----

struct CheckpointBranch {
  std::string branch;                // "stage1-step-40000"
  std::string phase;                 // what stands before the step: "stage1"; may be empty
  std::optional<std::int64_t> step;  // none: the name tells none ("main")
  std::string label;                 // short, a name for a folder: "S1-40K"
};

struct BranchChoice {
  std::vector<std::string> match;  // globs; none: every branch whose name tells a step
  std::int64_t every = 1;          // every n-th of them, and the last
  std::int64_t log = 0;            // at most so many of each phase, evenly in the log of the step
};

// The chosen ones of these names, by phase and step: stages of pre-training first, then others,
// numbers inside names as numbers.
QKSCOPE_API std::vector<CheckpointBranch> checkpoint_branches(const std::vector<std::string>& names,
                                                              const BranchChoice& choice = {});

struct BranchSweep {
  std::string repository;  // "org/name"
  std::string config;      // the capture configuration of every run; model.name is the repository
  std::vector<CheckpointBranch> branches;
};

// A sweep file over them, named after the file. It replaces one that is there.
QKSCOPE_API void write_branch_sweep(const BranchSweep& sweep, const std::string& file);

// ---- Comparison ----

// Names of the sets of published numbers that are installed: "smollm3", "models", ...
QKSCOPE_API std::vector<std::string> published_sets();

struct CompareOptions {
  std::string published = "smollm3";  // a set, or the path of a CSV file of one's own
  std::vector<std::string> only;      // labels of runs; none: every finished one
  // The published name that the single run stands for, or the scope that all runs together stand
  // for; "": labels decide.
  std::string as;
  bool every_source = false;  // also rows that are not the preferred ones of their number
};

// A sweep (RESULTS/NAME) or the results of one analysis beside published numbers, each by its own
// definition. One row for each number: measure, checkpoint, model (our run, "" where there is
// none), published, ours, difference, se_published (what rounding and reading a figure leave open),
// se_ours (standard error over texts), se (of the difference), z (difference / se), our_column,
// kind, source, note (why there is no number of ours). What is not known is NaN. Checkpoints and
// runs are matched by label; where no label is shared, a sweep of as many checkpoints is matched by
// order, with a warning in the log.
QKSCOPE_API Table compare_with_published(const std::string& results,
                                         const CompareOptions& options = {});

// Two sweeps, or two results, with each other: measure, model_a, model_b, a, b, difference (b - a),
// se_a, se_b, se, z. Runs are matched by label, or one to one where each side has a single run;
// what has no partner is told in the log.
QKSCOPE_API Table compare_runs(const std::string& a, const std::string& b);

// ---- The tables of many sweeps.

struct CombinedTable {
  std::string name;         // of the file, without its ending
  std::int64_t sweeps = 0;  // that have it
  std::int64_t rows = 0;
};

// Stacks the Parquet tables of sweeps (RESULTS/NAME, or another name as in NAME=RESULTS/NAME) in
// the folder `out`: first the column sweep, then those of all sweeps by name, null where a sweep
// lacks one. The table runs has the checkpoint and the step of every run. Two sweeps of one name,
// and a column that has another type in another sweep, are bad input.
QKSCOPE_API std::vector<CombinedTable> combine_sweeps(const std::vector<std::string>& sweeps,
                                                      const std::string& out);

// ---- Several analyses taken together.

struct PoolOptions {
  std::vector<std::string> results;  // folders of analyses, and of sweeps (RESULTS/NAME)
  int depth_bins = 10;               // of layer / last layer
  // Two numbers of heads each whose correlation over heads is taken.
  std::vector<std::pair<std::string, std::string>> pairs;
  // A CSV file of outside scores: long, with columns metric and value (and benchmark, mode,
  // length_tokens where there are several), or one column per score. "": none.
  std::string scores;
  std::string by = "model";  // the column of the file that holds the labels of our runs
};

struct PooledTables {
  Table pooled;  // model ("all": all runs), heads, quantity, n_heads, mean, median, std, min, max
  Table depth;   // model, quantity, bin, depth_low, depth_high, n_heads, mean, median
  Table correlations;  // over heads: model, x, y, n_heads, pearson, pearson_p, spearman, spearman_p
  // Over runs, of every measure of an overview with every score: score, measure, n_models, pearson,
  // pearson_p, spearman, spearman_p. Empty without a file of scores.
  Table scores;
};

// Statistics over the heads of all runs, each head counting once, and of each run.
QKSCOPE_API PooledTables pool_results(const PoolOptions& options);

}  // namespace qkscope
