// Runs statistics from the first document to the published files, and merges shards. Parts and
// locks are the same as for captures (capture/format/data_root.h).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "capture/format/data_root.h"
#include "capture/format/examples.h"
#include "capture/stats_run/stats_plan.h"
#include "capture/writer/part_run.h"

namespace qkscope {

extern const RunKind kStatisticsRun;

// Results of computing statistics and a capture in the same forward passes. Each output is
// byte-identical to a separate run and is resumed from its own journal.
struct StatsAndCaptureResult {
  StatsResult statistics;
  std::optional<CaptureResult> capture;  // nullopt if the statistics needed no forward pass
};
struct SharedPassCapture {
  const RunPlan& plan;
  CaptureOptions options;
};
PartRun make_statistics_part_run(const StatsRunPlan& plan, const StatsOptions& options);
void copy_run_totals(StatsResult& result, const PartRunResult& run);

StatsAndCaptureResult run_stats(const StatsRunPlan& plan, const StatsOptions& options,
                                const SharedPassCapture* capture = nullptr);

// Throws a bad-input error if the folder contains a finished capture.
void refuse_finished_capture(const std::string& folder);

// Writes final statistics to root.final_folder(). `add_examples` appends examples in dataset order.
void write_final_statistics(const DataRoot& root, const Statistics& statistics,
                            DocumentSource& documents,
                            const std::function<void(ExamplesWriter&)>& add_examples);

}  // namespace qkscope
