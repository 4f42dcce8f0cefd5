// What a run of statistics will add up, before it runs.
#pragma once

#include <vector>

#include "capture/run/capture_plan.h"
#include "engine/statistics/moments.h"
#include "qkscope/statistics.h"

namespace qkscope {

// What is behind a StatsPlan (qkscope/statistics.h).
struct StatsRunPlan {
  StatsConfig config;              // stats.bucket_size is set
  RunPlan run;                     // texts, model, device; its groups of heads mean nothing here
  Statistics statistics;           // of no document: shapes, layers, RoPE, metadata
  std::vector<float> key_scales;   // (model's layers, key heads) of stats.fp8_scales, else empty
  std::vector<float> key_filters;  // (model's layers, key heads, d) of stats.q_filters, else empty

  bool adds_attention() const { return config.stats.near_keys; }
  // Whether the moments are added up; false also where post is taken from pre.
  bool adds(VectorKind kind, VectorStage stage, std::int64_t layer) const;
  MomentRequest moment_request(VectorKind kind, VectorStage stage) const;
};

// Bad input: layers, heads or sizes that the model does not have.
StatsRunPlan make_stats_run_plan(const StatsConfig& config, const ComputeOptions& compute);

// What decides the statistics of a configuration, as far as it tells without its model.
Json effective_stats_config(const StatsConfig& config);

// Fills in the moments after RoPE where they are those before it. After all merges.
void copy_unrotated(Statistics& statistics);

}  // namespace qkscope
