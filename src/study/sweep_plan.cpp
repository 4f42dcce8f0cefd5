#include "study/sweep_plan.h"

#include "hub/fetch.h"

namespace qkscope {
namespace {

PlannedRun plan_run(const SweepConfig& config, const SweepFolder& folder, const SweepRun& run) {
  PlannedRun planned{.label = run.label, .capture = {}, .error = ""};
  try {
    planned.captured = folder.captured(run);
    planned.analysed = planned.captured && folder.analysed(folder.analysis(config, run));
    if (planned.captured) return planned;
    fetch_capture_inputs(run.capture, {.weights = false, .quiet = true});
    planned.capture = dry_run(make_plan(run.capture), {});
  } catch (const Error& error) {
    planned.error = error.what();
    planned.error_kind = error.kind();
  }
  return planned;
}

}  // namespace

std::vector<PlannedRun> plan_sweep(const SweepConfig& config, const SweepFolder& folder,
                                   const SweepOptions& options) {
  std::vector<PlannedRun> all;
  for (const auto* run : chosen_runs(config, options))
    all.push_back(plan_run(config, folder, *run));
  return all;
}

}  // namespace qkscope
