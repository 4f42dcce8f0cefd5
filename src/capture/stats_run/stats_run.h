// Runs statistics from the first document to the published files, and merges shards. Parts and
// locks work as in a capture (capture/format/data_root.h). Each journal line of a part refers to
// three files:
//
//   .parts/00000-of-00001/00000007.seg     examples since the previous segment
//   .parts/00000-of-00001/00000007.state   all sums so far; only the newest two are kept
//   .parts/00000-of-00001/00000007.docs    attention per document (groups B and C) of the segment
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/core/clock.h"
#include "capture/format/data_root.h"
#include "capture/format/examples.h"
#include "capture/format/journal.h"
#include "capture/stats_run/stats_pass.h"
#include "capture/stats_run/stats_plan.h"
#include "capture/writer/part_run.h"

namespace qkscope {

class StatsPartWriter {
 public:
  // Resumes from the last state in the journal; starts from `fresh` if the journal is empty.
  StatsPartWriter(Journal& journal, StatsRunState fresh);

  StatsRunState& state() { return state_; }
  bool has_segments() const { return !journal_.entries().empty(); }

  // Adds the examples of a batch. state() must already include the sums of this batch.
  void add_batch(const ExampleBatch& prepared, std::vector<DocumentRecord> documents);
  // Writes all examples and sums added so far to disk as a new segment.
  void flush();

  std::int64_t example_count() const { return done_.examples; }  // with those of earlier processes
  std::int64_t token_count() const { return done_.tokens; }

 private:
  Journal& journal_;
  StatsRunState state_;
  std::vector<ExampleRecord> examples_;    // since the last segment
  std::vector<DocumentRecord> documents_;  // since the last segment
  JournalEntry done_;                      // totals of the part
  Clock::time_point saved_ = Clock::now();
};

StatsRunState load_last_stats_state(const Journal& journal);

// Reads the per-document attention of all parts in dataset order, one document at a time.
std::unique_ptr<DocumentSource> open_part_documents(const std::vector<Journal>& parts);

extern const RunKind kStatisticsRun;

// Results of computing statistics and a capture in the same forward passes. Each output is
// byte-identical to a separate run and is resumed from its own journal.
struct StatsAndCaptureResult {
  StatsResult statistics;
  std::optional<CaptureResult> capture;  // nullopt if the statistics needed no forward pass
};
struct CaptureRequest {
  const RunPlan& plan;
  CaptureOptions options;
};
ShardRunOptions make_stats_shard_options(const StatsRunPlan& plan, const StatsOptions& options);
// Implements PartAssembler: merges the sums of all parts and writes the final files.
void assemble_statistics(const DataRoot& root, const std::vector<Journal>& parts);
void copy_run_totals(StatsResult& result, const ShardRunResult& run);

StatsAndCaptureResult run_stats(const StatsRunPlan& plan, const StatsOptions& options,
                                const CaptureRequest* capture = nullptr);

void check_no_finished_capture(const std::string& folder);

// Writes final statistics to root.final_folder(). `add_examples` appends examples in dataset order.
void write_final_statistics(const DataRoot& root, const Statistics& statistics,
                            DocumentSource& documents,
                            const std::function<void(ExamplesWriter&)>& add_examples);

}  // namespace qkscope
