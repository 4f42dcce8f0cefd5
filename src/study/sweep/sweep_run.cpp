#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <future>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <fmt/ranges.h>

#include "analysis/results/write_results.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "capture/format/data_root.h"
#include "capture/format/layout.h"
#include "capture/run/capture_run.h"
#include "capture/stats_run/stats_run.h"
#include "input/store/stored_folder.h"
#include "qkscope/analysis.h"
#include "qkscope/capture.h"
#include "qkscope/experimental/log.h"
#include "qkscope/hub.h"
#include "qkscope/statistics.h"
#include "study/sweep/sweep.h"
#include "study/sweep/sweep_shards.h"

namespace qkscope {
namespace {

using Outcome = RunReport::Outcome;

constexpr std::chrono::milliseconds kLockPollInterval(500);

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::ranges::find(list, word) != list.end();
}

void check_label(const std::string& label, const std::vector<std::string>& labels,
                 const std::string& sweep) {
  if (contains(labels, label)) return;
  const auto near = nearest(label, labels);
  bad_input("--only {}: the sweep {} has no such run; {}", in_quotes(label), sweep,
            near.empty() ? fmt::format("there are {}", fmt::join(labels, ", "))
                         : fmt::format("did you mean {}?", near));
}

// Downloads the inputs of runs from the Hub, one run ahead, and evicts weights after their last
// use.
class SweepInputs {
 public:
  // `runs` are in execution order. With `evict`, the weights of a checkpoint are removed from the
  // cache when all its runs are released.
  SweepInputs(std::vector<const SweepRun*> runs, FetchOptions options, bool evict)
      : runs_(std::move(runs)), options_(options), evict_(evict), released_(runs_.size()) {}

  // Downloads checkpoint, tokenizer and dataset of run i; blocks until complete.
  void fetch(std::size_t i) {
    if (ahead_.valid()) ahead_.wait();
    fetch_capture_inputs(runs_[i]->capture, options_);
  }

  // Starts to download for run i in the background. Errors are reported by fetch(i).
  void fetch_ahead(std::size_t i) {
    auto options = options_;
    options.quiet = true;  // the current run owns the progress line
    ahead_ = std::async(std::launch::async, [config = runs_[i]->capture, options] {
      try {
        fetch_capture_inputs(config, options);
      } catch (const Error&) {  // fetch() reports it as the failure of that run
      }
    });
  }

  // Run i no longer needs its weights. Thread-safe.
  void release(std::size_t i) {
    if (!evict_ || !runs_[i]->data.empty()) return;
    const std::lock_guard lock(mutex_);
    released_[i] = true;
    for (std::size_t other = 0; other < runs_.size(); ++other)
      if (!released_[other] && shares_checkpoint(i, other)) return;
    const auto& model = runs_[i]->capture.model;
    const auto freed = evict_weights(model.name, model.revision.value_or(""));
    if (freed > 0) log::info("{}: {} of weights evicted", runs_[i]->label, format_bytes(freed));
  }

  bool shares_checkpoint(std::size_t a, std::size_t b) const {
    const auto& first = runs_[a]->capture.model;
    const auto& second = runs_[b]->capture.model;
    return first.name == second.name && first.revision == second.revision;
  }

 private:
  std::vector<const SweepRun*> runs_;
  FetchOptions options_;
  bool evict_;
  std::mutex mutex_;
  std::vector<bool> released_;
  std::future<void> ahead_;  // the destructor joins the download
};

class SweepRunner {
 public:
  SweepRunner(const SweepConfig& config, const SweepFolder& folder, const SweepOptions& options)
      : config_(config),
        folder_(folder),
        options_(options),
        runs_(chosen_runs(config, options)),
        counting_(options.compact || options.jobs > 1),
        inputs_(runs_, {.quiet = options.quiet || counting_, .stop = options.stop},
                options.evict && options.part == SweepPart::all),
        progress_({.what = config.name,
                   .unit = "runs",
                   .total = std::ssize(runs_),
                   .quiet = options.quiet || !counting_}),
        publishes_(wants_to_publish()) {}

  std::vector<RunReport> run() {
    begin();
    reports_.resize(runs_.size());
    if (options_.part == SweepPart::tables) {
      for (std::size_t i = 0; i < runs_.size(); ++i) reports_[i] = as_found(*runs_[i]);
    } else {
      run_all();
    }
    if (!makes_tables()) return std::move(reports_);
    make_tables(folder_, config_, inner_quiet());
    return std::move(reports_);
  }

 private:
  // Downloads earlier results and records the list of branches for other machines.
  void begin() const {
    if (folder_.in_store() && options_.part != SweepPart::all)
      bad_input(
          "--part: the tasks of a cluster share a local folder; {} is an address: leave it out, "
          "and deal whole runs with --shard i/n",
          folder_.place());
    folder_.make();
    const auto lock = folder_.lock_tables();
    folder_.download_locked(config_);
    if (folder_.record_branches(config_)) folder_.upload(config_, true);
  }

  void run_all() {
    write_index();
    const auto workers =
        std::min<std::size_t>(static_cast<std::size_t>(options_.jobs), runs_.size());
    {
      std::vector<std::jthread> threads;  // all runs share one thread pool
      for (std::size_t i = 1; i < workers; ++i) threads.emplace_back([this] { work(); });
      work();
    }
    if (broken_) std::rethrow_exception(broken_);
    progress_.finish();
  }

  // Report of a run that other tasks worked on, from the state on disk.
  RunReport as_found(const SweepRun& run) const {
    RunReport report;
    report.label = run.label;
    report.outcome = folder_.finished(config_, run) ? Outcome::already_done : Outcome::unfinished;
    if (const auto failed = folder_.read_failure(run.label)) {
      report.outcome = Outcome::failed;
      report.error = *failed;
    }
    return report;
  }

  // Worker thread. Exceptions of a run become its failure; any other exception ends the sweep.
  void work() {
    try {
      for (std::size_t i = next_++; i < runs_.size(); i = next_++) run_and_report(i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      broken_ = std::current_exception();
      next_ = runs_.size();
    }
  }

  void run_and_report(std::size_t i) {
    auto& report = reports_[i];
    report.label = runs_[i]->label;
    if (stopped()) return;
    announce(i);
    try {
      report.outcome = run_one(i, report);
    } catch (const Error& error) {
      fail(*runs_[i], report, error);
    } catch (const std::exception& error) {
      fail(*runs_[i], report, Error(ErrorKind::failure, error.what()));
    }
    // Evict the weights of a failed run, or failures would fill the disk; a stopped run keeps them.
    if (report.outcome == Outcome::failed && !stopped()) inputs_.release(i);
    finish_one(report);
  }

  Outcome run_one(std::size_t i, RunReport& report) {
    const auto& run = *runs_[i];
    if (options_.part == SweepPart::capture)
      return capture_shard(i);  // in parallel with other shards
    const auto lock = folder_.lock_run(run.label);
    if (!lock.held()) return Outcome::elsewhere;
    folder_.download_run(run.label);
    if (options_.part == SweepPart::analyse) check_captured(run);
    folder_.delete_failure(run.label);
    auto outcome = Outcome::already_done;
    if (options_.part != SweepPart::analyse) outcome = capture_and_merge(i);
    if (outcome == Outcome::interrupted || options_.part == SweepPart::merge) return outcome;
    outcome = analyse(run, outcome);
    if (outcome == Outcome::interrupted) return outcome;
    folder_.upload_run(run.label, inner_quiet());
    publish(run, report);
    if (outcome == Outcome::done) folder_.delete_downloads(run.label);
    return outcome;
  }

  // Throws bad input, with the reason of an earlier failure, if the run is not captured.
  void check_captured(const SweepRun& run) const {
    if (folder_.captured(run) && folder_.measured(run)) return;
    const auto why = folder_.read_failure(run.label);
    bad_input("{}", why ? *why : "its texts are not all captured and merged: --part merge does it");
  }

  // Makes the files of capture and statistics.
  Outcome capture_and_merge(std::size_t i) {
    const auto& run = *runs_[i];
    if (options_.part == SweepPart::merge)
      for (const auto& folder : {folder_.capture(run.label), folder_.statistics(run.label)})
        wait_for_tasks(folder);
    if (stopped()) return Outcome::interrupted;
    const Missing missing{.capture = !folder_.captured(run), .statistics = !folder_.measured(run)};
    folder_.remove_leftover_parts(run);
    if (missing.capture || missing.statistics) {
      const auto begun = begun_shards(folder_, run);
      const auto count = begun > 0 ? begun : options_.texts.count;
      if (count == 1) fetch(i);
      if (!(count == 1 ? make(run, missing, {}) : make_in_shards(i, missing, count)))
        return Outcome::interrupted;
    }
    inputs_.release(i);
    return missing.capture || missing.statistics ? Outcome::done : Outcome::already_done;
  }

  // Waits for the lock of a shard: a task whose script was killed may still be shutting down.
  void wait_for_tasks(const std::string& data_root) const {
    const auto lock_file = DataRoot(data_root).parts() + "/" + layout::kLockFile;
    bool told = false;
    while (path_exists(lock_file) && !stopped()) {
      const FileLock lock(lock_file, FileLock::Mode::exclusive, FileLock::Wait::no);
      if (lock.held()) return;
      if (!std::exchange(told, true)) log::info("{}: waiting for a task that is at it", data_root);
      std::this_thread::sleep_for(kLockPollInterval);
    }
  }

  // `before` is the outcome of capture and statistics.
  Outcome analyse(const SweepRun& run, Outcome before) const {
    if (before == Outcome::already_done && folder_.analysed(config_, run))
      return Outcome::already_done;
    folder_.mark_changed(run.label);
    if (stopped() || !analyse_into(analysis_of(run), folder_.results(run.label)))
      return Outcome::interrupted;
    auto exact = folder_.exact_analysis(config_, run);
    if (!exact) return Outcome::done;
    exact->quiet = inner_quiet();
    return analyse_into(*exact, folder_.exact_results(run.label)) ? Outcome::done
                                                                  : Outcome::interrupted;
  }

  // Data that a run still needs.
  struct Missing {
    bool capture = false;
    bool statistics = false;
  };

  Outcome capture_shard(std::size_t i) {
    const auto& run = *runs_[i];
    const Missing missing{.capture = !folder_.captured(run), .statistics = !folder_.measured(run)};
    if (!missing.capture && !missing.statistics) return Outcome::already_done;
    fetch(i);
    return make(run, missing, options_.texts) ? Outcome::done : Outcome::interrupted;
  }

  // Makes capture and statistics of a shard. Returns false if stopped.
  bool make(const SweepRun& run, const Missing& missing, const Shard& texts) const {
    if (!missing.capture) return measure(run, texts);
    return missing.statistics ? capture_and_measure(run, texts) : capture(run, texts);
  }

  // Completes unfinished shards, then merges all. Loads the model only if a shard is unfinished, so
  // a pure merge needs no GPU. Returns false if stopped.
  bool make_in_shards(std::size_t i, const Missing& missing, std::int64_t count) {
    const auto& run = *runs_[i];
    const auto captured = complete_ones(capture_shards(folder_, run));
    const auto measured = complete_ones(statistics_shards(folder_, run));
    bool fetched = false;
    for (std::int64_t index = 0; index < count; ++index) {
      const Missing here{.capture = missing.capture && !captured.contains(index),
                         .statistics = missing.statistics && !measured.contains(index)};
      if (!here.capture && !here.statistics) continue;
      if (!std::exchange(fetched, true)) fetch(i);
      if (!make(run, here, {index, count})) return false;
    }
    if (missing.capture) merge_parts(folder_.capture(run.label), inner_quiet());
    if (missing.statistics) merge_shards(folder_.statistics(run.label));
    return true;
  }

  static std::set<std::int64_t> complete_ones(const std::vector<ShardProgress>& shards) {
    std::set<std::int64_t> complete;
    for (const auto& one : shards)
      if (one.complete) complete.insert(one.shard.index);
    return complete;
  }

  // Returns false if stopped.
  bool analyse_into(const AnalyzeOptions& analysis, const std::string& results) const {
    const auto analysed = analyze(analysis);
    if (!analysed) return false;
    remove_summary(results);
    std::filesystem::remove_all(results);  // may contain tables of other options
    write_results(results, *analysed, analysis);
    report_failed_heads(*analysed, results);
    return true;
  }

  // Statistics over every token of the texts. Returns false if stopped.
  bool measure(const SweepRun& run, const Shard& texts) const {
    const auto result = run_stats(stats_plan(run), stats_options(run, texts));
    return result.outcome != CaptureResult::Outcome::interrupted;
  }

  // Capture and statistics from the same forward passes; with several devices one after the other.
  // Returns false if stopped.
  bool capture_and_measure(const SweepRun& run, const Shard& texts) const {
    const auto plan = capture_plan(run);
    if (plan.run_plan().workers.size() > 1) return capture(run, texts) && measure(run, texts);
    const auto options = capture_options(plan, texts);
    const auto result = run_stats(stats_plan(run).run_plan(), stats_options(run, texts),
                                  {.plan = plan.run_plan(), .options = options});
    if (result.statistics.outcome == CaptureResult::Outcome::interrupted) return false;
    const auto captured = result.capture ? *result.capture : run_capture(plan, options);
    return captured.outcome != CaptureResult::Outcome::interrupted;
  }

  StatsPlan stats_plan(const SweepRun& run) const {
    const auto root = folder_.statistics(run.label);
    if (!folder_.in_store()) make_folders(parent_folder(root));
    return make_stats_plan(stats_config(run, root), config_.compute);
  }

  StatsOptions stats_options(const SweepRun& run, const Shard& texts) const {
    // Finished statistics have another configuration, or they would not be missing.
    const bool anew = options_.overwrite && folder_.has_statistics(run.label);
    return {.shard = texts, .overwrite = anew, .quiet = inner_quiet(), .stop = options_.stop};
  }

  // Returns nullopt if the download of the run's data was stopped; the next sweep resumes it.
  std::optional<AnalysisRun> analyze(const AnalyzeOptions& analysis) const {
    try {
      return analyze_capture(analysis);
    } catch (const Error&) {
      if (stopped()) return {};
      throw;
    }
  }

  // Returns false if stopped.
  bool capture(const SweepRun& run, const Shard& texts) const {
    const auto plan = capture_plan(run);
    const auto result = run_capture(plan, capture_options(plan, texts));
    return result.outcome != CaptureResult::Outcome::interrupted;
  }

  CapturePlan capture_plan(const SweepRun& run) const {
    CaptureConfig config = run.capture;
    config.output.data_root = folder_.capture(run.label);
    return make_plan(config, config_.compute);
  }

  CaptureOptions capture_options(const CapturePlan& plan, const Shard& texts) const {
    const bool anew = options_.overwrite && !can_resume_capture(plan.run_plan());
    return {.shard = texts, .overwrite = anew, .quiet = inner_quiet(), .stop = options_.stop};
  }

  // Downloads the inputs of run i and prefetches the next checkpoint in the background.
  void fetch(std::size_t i) {
    inputs_.fetch(i);
    if (options_.jobs > 1) return;
    for (std::size_t next = i + 1; next < runs_.size(); ++next) {
      const auto& run = *runs_[next];
      if (inputs_.shares_checkpoint(i, next) || (folder_.captured(run) && folder_.measured(run)))
        continue;
      return inputs_.fetch_ahead(next);
    }
  }

  AnalyzeOptions analysis_of(const SweepRun& run) const {
    auto analysis = folder_.analysis(config_, run);
    analysis.quiet = inner_quiet();
    analysis.stop = options_.stop;
    return analysis;
  }

  // Publishes the capture. An error is reported separately: the results of the run are complete.
  void publish(const SweepRun& run, RunReport& report) {
    using Publication = RunReport::Publication;
    if (!run.publish || !publishes_ || stopped()) return;
    try {
      if (folder_.published(run)) {
        report.publication = Publication::already_published;
        return;
      }
      const std::lock_guard one_at_a_time(
          publishing_);  // publications share repository and network
      const auto result = publish_capture(fetch_folder(folder_.capture(run.label), inner_quiet()),
                                          {.repo = run.publish->repo,
                                           .branch = run.publish->branch,
                                           .private_repo = run.publish->private_repo,
                                           .quiet = inner_quiet()});
      folder_.record_published(run, result.address);
      report.publication = result.sent + result.removed > 0 ? Publication::published
                                                            : Publication::already_published;
      log::info("{}: published: {}", run.label, result.address);
    } catch (const Error& error) {
      report.publication = Publication::failed;
      report.publish_error = error.what();
      report.publish_error_kind = error.kind();
      log::error("{}: not published: {}", run.label, error.what());
    }
  }

  // Returns true if some run is to be published and a token is available.
  bool wants_to_publish() const {
    const bool analyses = options_.part == SweepPart::all || options_.part == SweepPart::analyse;
    if (!options_.publish || !analyses) return false;
    const bool any =
        std::ranges::any_of(runs_, [](const SweepRun* run) { return run->publish.has_value(); });
    if (!any || can_publish()) return any;
    log::warn(
        "nothing will be published: there is no token, or HF_HUB_OFFLINE is set; set HF_TOKEN and "
        "run the same command again to publish what is captured");
    return false;
  }

  void announce(std::size_t i) {
    const auto& label = runs_[i]->label;
    if (!counting_) return log::info("{} ({} of {})", label, i + 1, runs_.size());
    const std::lock_guard lock(mutex_);
    progress_.update(finished_, "at " + label);
  }

  void fail(const SweepRun& run, RunReport& report, const Error& error) const {
    report.outcome = Outcome::failed;
    report.error = error.what();
    report.error_kind = error.kind();
    // The merge task retries the shard; only its failure counts as that of the run.
    if (options_.part == SweepPart::capture) return;
    if (finished_elsewhere(run)) {
      report.outcome = Outcome::elsewhere;
      return;
    }
    folder_.write_failure(run.label, error);
    try {
      folder_.upload_run(run.label, true);
    } catch (const Error& not_put) {
      log::warn("{}: why it failed is not in the store: {}", run.label, not_put.what());
    }
  }

  // Returns true if another machine finished the run that failed here, probably by interference.
  bool finished_elsewhere(const SweepRun& run) const {
    if (!folder_.in_store()) return false;
    try {
      const auto lock = folder_.lock_run(run.label);
      return !lock.held() || (folder_.download_run(run.label) && folder_.finished(config_, run));
    } catch (const Error&) {  // store unreachable: keep the failure
      return false;
    }
  }

  void finish_one(const RunReport& report) {
    const std::lock_guard lock(mutex_);
    if (report.outcome == Outcome::failed) log::error("{}: {}", report.label, report.error);
    if (report.outcome == Outcome::elsewhere)
      log::warn("{}: another process is at this run; left to it", report.label);
    write_index();
    progress_.update(++finished_);
  }

  // Tasks for one part of a run leave the files of the whole sweep to the task `tables`.
  bool makes_tables() const {
    return options_.part == SweepPart::all || options_.part == SweepPart::tables;
  }

  void write_index() const {
    if (!makes_tables()) return;
    const auto lock = folder_.lock_tables();
    folder_.write_runs(config_);
  }

  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }
  bool inner_quiet() const { return options_.quiet || counting_; }

  const SweepConfig& config_;
  const SweepFolder& folder_;
  const SweepOptions& options_;
  std::vector<const SweepRun*> runs_;
  bool counting_;
  SweepInputs inputs_;
  Progress progress_;
  bool publishes_;
  std::mutex publishing_;
  std::vector<RunReport> reports_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  std::int64_t finished_ = 0;
  std::exception_ptr broken_;
};

}  // namespace

std::vector<const SweepRun*> chosen_runs(const SweepConfig& config, const SweepOptions& options) {
  std::vector<std::string> labels;
  for (const auto& run : config.runs) labels.push_back(run.label);
  for (const auto& label : options.only) check_label(label, labels, config.name);
  std::vector<const SweepRun*> chosen;
  std::int64_t index = 0;
  for (const auto& run : config.runs) {
    const bool in_shard = index++ % options.shard.count == options.shard.index;
    if (in_shard && (options.only.empty() || contains(options.only, run.label)))
      chosen.push_back(&run);
  }
  return chosen;
}

std::vector<RunReport> run_sweep(const SweepConfig& config, const SweepFolder& folder,
                                 const SweepOptions& options) {
  return SweepRunner(config, folder, options).run();
}

}  // namespace qkscope
