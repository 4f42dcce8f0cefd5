// Analyses of the query heads that share one key head, and the entry points for statistics.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/methods/moments.h"
#include "analysis/methods/rotation.h"
#include "analysis/methods/text_groups.h"
#include "analysis/results/capture_heads.h"
#include "qkscope/analysis.h"
#include "qkscope/statistics.h"

namespace qkscope {

// Query heads that read one key head (GQA): its file is read and its moments are computed once.
struct KeyGroup {
  HeadId key;
  std::vector<std::size_t> heads;  // indices into AnalysisRun::heads
};

// Sums up seconds since the previous lap.
class Stopwatch {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Runs the analyses of a capture, one KeyGroup per call. Calls from several threads are safe.
class HeadRunner {
 public:
  // `model` is null where the capture describes itself. Arguments must outlive the runner.
  HeadRunner(const AnalyzeOptions& options, const CaptureIndex& index, const ModelFacts* model,
             const TextGroups& texts, AnalysisRun& run)
      : options_(options), index_(index), model_(model), texts_(texts), run_(run) {}

  // Fills the reports of the group. An error is stored in the report of its head.
  void run_group(const KeyGroup& group);

 private:
  struct KeyHead;

  HeadFile read(const HeadId& id) const;
  // The jackknife and the cross-fitted drift axis of the PCA use moments without each group.
  bool needs_groups() const { return options_.errors || options_.pca; }
  RopeInfo rope_of(const HeadFile& file, int layer, const std::string& path) const;
  KeyHead prepare(const HeadId& key, AnalysisTimes& times) const;
  void run_head(HeadReport& report, const KeyHead& key, AnalysisTimes& times);
  void run_pca(HeadReport& report, const GroupedRows& queries, const KeyHead& key,
               const PooledMoments& pooled, const std::vector<Moments>& without_group) const;
  void run_rotation(HeadReport& report, const CentredRows& queries, const CentredRows& keys,
                    const PooledMoments& pooled, const std::vector<double>& inv_freq);
  void run_plasticity(HeadReport& report, const HeadFile& file, const CentredRows& queries,
                      const KeyHead& key) const;
  std::unique_ptr<RotationMemory> take_memory();

  const AnalyzeOptions& options_;
  const CaptureIndex& index_;
  const ModelFacts* model_;
  const TextGroups& texts_;
  AnalysisRun& run_;
  std::mutex mutex_;                                     // of run_.times and memory_
  std::vector<std::unique_ptr<RotationMemory>> memory_;  // buffers to reuse, at most one per thread
};

// Stores the error in the report and drops its partial results.
void fail_head(HeadReport& report, ErrorKind kind, const std::string& message);

// Returns the window of one layer's attention: from the head file, else from the model, else none.
std::optional<std::int32_t> window_in(const HeadRows& rows, int layer, const ModelFacts* model);

// Returns the plasticity options with profile bins and context taken from the first readable head,
// so that the profiles of all heads have the same bins.
PlasticityOptions shared_profile(const AnalyzeOptions& options,
                                 const std::vector<HeadReport>& heads);

// ---- Statistics (sums over every token) as input.

bool is_statistics_folder(const std::string& folder);

// Returns every result that follows from the sums; numbers that need rows are NaN.
AnalysisRun analyze_statistics(const AnalyzeOptions& options);

// Returns the tables attention (near keys and all keys), distance (all keys) and key_channels
// (moments) of the chosen query heads, as far as the statistics have them.
std::vector<ResultTable> statistics_tables(const Statistics& statistics, const std::string& label,
                                           const std::vector<HeadId>& queries);

}  // namespace qkscope
