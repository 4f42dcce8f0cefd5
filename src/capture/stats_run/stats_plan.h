// The plan of a run of statistics.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/io/json.h"
#include "capture/run/capture_plan.h"
#include "engine/statistics/moments.h"
#include "qkscope/statistics.h"

namespace qkscope {

struct YamlDocument;

// Reads the configuration of a capture and the section "stats".
StatsConfig read_stats_config(const YamlDocument& document);

// Implementation of StatsPlan (qkscope/statistics.h).
struct StatsRunPlan {
  StatsConfig config;              // stats.bucket_size is set
  RunPlan run;                     // texts, model and device; its head groups are unused
  Statistics statistics;           // zero documents, but shapes, layers, RoPE and metadata
  std::vector<float> key_scales;   // (model layers, key heads) of stats.fp8_scales, or empty
  std::vector<float> key_filters;  // (model layers, key heads, d) of stats.q_filters, or empty

  bool accumulates_attention() const { return config.stats.near_keys; }
  // Whether to accumulate these moments; false after RoPE if they equal the moments before RoPE.
  bool accumulates_moments(VectorKind kind, VectorStage stage, std::int64_t layer) const;
  MomentRequest moment_request(VectorKind kind, VectorStage stage) const;
};

// Plans a run. Layers, heads or sizes that the model does not have are bad input.
StatsRunPlan make_stats_run_plan(const StatsConfig& config, const ComputeOptions& compute,
                                 std::shared_ptr<ExternalEngine> engine = nullptr);

// Returns the settings that determine the statistics, as far as they are known without the model.
Json effective_stats_config(const StatsConfig& config);

// On layers without RoPE, copies moments before RoPE to those after it. Call after all merges.
void fill_post_moments_of_nope_layers(Statistics& statistics);

// ---- Exports (docs/how-to/exports.md) that statistics over all keys (group C) read as input ----

// Returns the file of an fp8-kv or q-filters export, given its folder or the file.
std::string key_scales_path(const std::string& path);
std::string key_filters_path(const std::string& path);

}  // namespace qkscope
