// Implements Sweep::run(): the loop over the runs of a sweep.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "analysis/results/results_folder.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "input/store/stored_folder.h"
#include "qkscope/analysis.h"
#include "qkscope/experimental/log.h"
#include "qkscope/hub.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

using Outcome = RunReport::Outcome;

class SweepRunner {
 public:
  SweepRunner(const Sweep::State& sweep, const SweepOptions& options)
      : config_(sweep.config),
        folder_(sweep.folder),
        options_(options),
        runs_(select_runs(config_, options)),
        counting_(options.compact || options.jobs > 1),
        quiet_(options.quiet || counting_),
        data_(config_, folder_, options, runs_, quiet_),
        progress_({.what = config_.name,
                   .unit = "runs",
                   .total = std::ssize(runs_),
                   .quiet = options.quiet || !counting_}),
        publishes_(should_publish()),
        reports_(runs_.size()) {}

  std::vector<RunReport> run() {
    if (folder_.is_in_store() && options_.part != SweepPart::all)
      reject(
          "--part: the tasks of a cluster share a local folder; {} is an address: leave it out, "
          "and deal whole runs with --shard i/n",
          folder_.path_or_uri());
    folder_.create_folders();
    {
      const auto lock = folder_.lock_tables();
      folder_.download_sweep_and_runs_locked(config_);
      // Uploads newly recorded branches, so that other machines select the same checkpoints.
      if (folder_.record_branches(config_)) folder_.upload_sweep_files(config_, true);
    }
    if (options_.part != SweepPart::tables) process_all_runs();
    for (std::size_t i = 0; i < runs_.size() && options_.part == SweepPart::tables; ++i) {
      const auto& run = *runs_[i];  // other tasks have processed the run
      auto& report = reports_[i];
      report.label = run.label;
      const auto failed = folder_.read_failure_file(run.label);
      report.error = failed.value_or("");
      report.outcome = failed                                  ? Outcome::failed
                       : folder_.is_run_finished(config_, run) ? Outcome::already_done
                                                               : Outcome::unfinished;
    }
    if (writes_tables()) write_combined_tables(folder_, config_, quiet_);
    return std::move(reports_);
  }

 private:
  void process_all_runs() {
    write_sweep_index();
    const auto workers =
        std::min<std::size_t>(static_cast<std::size_t>(options_.jobs), runs_.size());
    {
      std::vector<std::jthread> threads;  // all runs share one thread pool
      try {
        for (std::size_t i = 1; i < workers; ++i) threads.emplace_back([this] { run_worker(); });
      } catch (const std::system_error& error) {
        log::warn("only {} of {} runs at a time: {}", threads.size() + 1, workers, error.what());
      }
      run_worker();
    }
    if (broken_) std::rethrow_exception(broken_);
    progress_.finish();
  }

  // Worker thread. An exception in a run marks the run as failed; other exceptions end the sweep.
  void run_worker() {
    try {
      for (std::size_t i = next_++; i < runs_.size(); i = next_++) process_and_report_run(i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      broken_ = std::current_exception();
      next_ = runs_.size();
    }
  }

  void process_and_report_run(std::size_t i) {
    auto& report = reports_[i];
    report.label = runs_[i]->label;
    if (is_stop_requested()) return;
    if (!counting_) {
      log::info("{} ({} of {})", report.label, i + 1, runs_.size());
    } else {
      const std::lock_guard lock(mutex_);
      progress_.update(finished_, "at " + report.label);
    }
    try {
      report.outcome = process_run(i, report);
    } catch (const Error& error) {
      record_failure(*runs_[i], report, error);
    } catch (const std::exception& error) {
      record_failure(*runs_[i], report, Error(ErrorKind::failure, error.what()));
    }
    // Evict the weights of a failed run, or failures would fill the disk; a stopped run keeps them.
    if (report.outcome == Outcome::failed && !is_stop_requested()) data_.release_weights(i);
    const std::lock_guard lock(mutex_);
    if (report.outcome == Outcome::failed) log::error("{}: {}", report.label, report.error);
    if (report.outcome == Outcome::elsewhere)
      log::warn("{}: another process is at this run; left to it", report.label);
    write_sweep_index();
    progress_.update(++finished_);
  }

  Outcome process_run(std::size_t i, RunReport& report) {
    const auto& run = *runs_[i];
    // Tasks capture different shards of one run in parallel, so the run is not locked.
    if (options_.part == SweepPart::capture) return data_.compute_shard(i);
    const auto lock = folder_.lock_run(run.label);
    if (!lock.is_held()) return Outcome::elsewhere;
    folder_.download_run(run.label);
    if (options_.part == SweepPart::analyse && !folder_.has_complete_data(run)) {
      const auto why = folder_.read_failure_file(run.label);
      reject("{}", why ? *why : "its texts are not all captured and merged: --part merge does it");
    }
    folder_.delete_failure_file(run.label);
    auto outcome = Outcome::already_done;
    if (options_.part != SweepPart::analyse) outcome = data_.compute_capture_and_statistics(i);
    if (outcome == Outcome::interrupted || options_.part == SweepPart::merge) return outcome;
    if (outcome == Outcome::done || !folder_.has_current_analysis(config_, run)) {
      if (!analyse_run(run)) return Outcome::interrupted;
      outcome = Outcome::done;
    }
    if (config_.composition) data_.release_weights(i);
    folder_.upload_run(run.label, quiet_);
    publish_run(run, report);
    if (outcome == Outcome::done) folder_.delete_downloads(run.label);
    return outcome;
  }

  // Analyses the capture, the statistics and the composition of heads of a run. Returns false if
  // a signal stopped the sweep.
  bool analyse_run(const SweepRun& run) const {
    folder_.mark_run_changed(run.label);
    const auto exact = folder_.statistics_analysis_options(config_, run);
    const auto results = folder_.results_folder(run.label);
    return !is_stop_requested() &&
           analyse_into_folder(folder_.analysis_options_of_run(config_, run), results) &&
           (!exact || analyse_into_folder(*exact, folder_.statistics_results_folder(run.label))) &&
           (!config_.composition || run_until_done_or_stopped([&] {
             write_composition_scores(config_, run, results,
                                      {.quiet = quiet_, .stop = options_.stop});
           }));
  }

  // Returns false if a request to stop interrupted the action; the next sweep repeats it.
  bool run_until_done_or_stopped(const std::function<void()>& action) const {
    try {
      action();
      return true;
    } catch (const Error&) {
      if (is_stop_requested()) return false;
      throw;
    }
  }

  bool analyse_into_folder(AnalyzeOptions analysis, const std::string& results) const {
    analysis.quiet = quiet_;
    analysis.stop = options_.stop;
    std::optional<AnalysisRun> analysed;
    if (!run_until_done_or_stopped([&] { analysed = analyze_capture(analysis); })) return false;
    remove_summary_file(results);
    std::filesystem::remove_all(results);  // may contain tables of other options
    write_results(results, *analysed, analysis);
    report_failed_heads(*analysed, results);
    return true;
  }

  // Publishes the capture. If this fails, the run still succeeds: its results are complete.
  void publish_run(const SweepRun& run, RunReport& report) {
    using Publication = RunReport::Publication;
    if (!run.publish || !publishes_ || is_stop_requested()) return;
    try {
      if (folder_.is_capture_published(run)) {
        report.publication = Publication::already_published;
        return;
      }
      // Publish one capture at a time: publications share the repository and the network.
      const std::lock_guard one_at_a_time(publishing_);
      auto target = *run.publish;
      target.quiet = quiet_;
      const auto result =
          publish_capture(fetch_stored_folder(folder_.capture_location(run.label), quiet_), target);
      folder_.record_publication(run, result.address);
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

  // Returns true if a capture will be published. Warns if the Hub token or network is missing.
  bool should_publish() const {
    const bool analyses = options_.part == SweepPart::all || options_.part == SweepPart::analyse;
    const bool any =
        std::ranges::any_of(runs_, [](const SweepRun* run) { return run->publish.has_value(); });
    if (!options_.publish || !analyses || !any) return false;
    if (can_publish()) return true;
    log::warn(
        "nothing will be published: there is no token, or HF_HUB_OFFLINE is set; set HF_TOKEN and "
        "run the same command again to publish what is captured");
    return false;
  }

  void record_failure(const SweepRun& run, RunReport& report, const Error& error) const {
    report.outcome = Outcome::failed;
    report.error = error.what();
    report.error_kind = error.kind();
    // The merge task retries the shard; the run counts as failed only if the merge task fails.
    if (options_.part == SweepPart::capture) return;
    if (is_handled_by_other_machine(run)) {
      report.outcome = Outcome::elsewhere;
      return;
    }
    folder_.write_failure_file(run.label, error);
    try {
      folder_.upload_run(run.label, true);
    } catch (const Error& not_put) {
      log::warn("{}: why it failed is not in the store: {}", run.label, not_put.what());
    }
  }

  // Returns true if another machine has finished, or is processing, the run that failed here. The
  // failure was then probably caused by both machines working on the run at the same time.
  bool is_handled_by_other_machine(const SweepRun& run) const {
    if (!folder_.is_in_store()) return false;
    try {
      const auto lock = folder_.lock_run(run.label);
      return !lock.is_held() ||
             (folder_.download_run(run.label) && folder_.is_run_finished(config_, run));
    } catch (const Error&) {  // store unreachable: keep the failure
      return false;
    }
  }

  // Whether this process writes the tables: only if it runs the whole sweep or the part `tables`.
  bool writes_tables() const {
    return options_.part == SweepPart::all || options_.part == SweepPart::tables;
  }

  void write_sweep_index() const {
    if (!writes_tables()) return;
    const auto lock = folder_.lock_tables();
    folder_.write_runs_file(config_);
  }

  bool is_stop_requested() const { return options_.stop != nullptr && options_.stop->load(); }

  const SweepConfig& config_;
  const SweepFolder& folder_;
  const SweepOptions& options_;
  std::vector<const SweepRun*> runs_;
  bool counting_;  // the progress line counts finished runs
  bool quiet_;     // single runs show no progress
  RunDataProducer data_;
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

std::vector<RunReport> Sweep::run(const SweepOptions& options) const {
  return translate_exceptions([&] { return SweepRunner(*state_, options).run(); });
}

}  // namespace qkscope
