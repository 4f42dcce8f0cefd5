// The plan of a run of statistics.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/io/json.h"
#include "capture/run/capture_plan.h"
#include "engine/device/backend.h"
#include "engine/statistics/moments.h"
#include "qkscope/statistics.h"

namespace qkscope {

struct YamlDocument;

// Reads the configuration of a statistics run: the sections of a capture and the section "stats".
StatsConfig read_stats_config(const YamlDocument& document);

// Implementation of StatsPlan (qkscope/statistics.h).
struct StatsRunPlan {
  StatsConfig config;              // with stats.bucket_size filled in
  RunPlan run;                     // texts, model and device; its head groups are unused
  Statistics statistics;           // zero documents, but shapes, layers, RoPE and metadata
  std::vector<float> key_scales;   // (model layers, key heads) of stats.fp8_scales, or empty
  std::vector<float> key_filters;  // (model layers, key heads, d) of stats.q_filters, or empty

  bool accumulates_attention() const { return config.stats.near_keys; }
  // Whether to accumulate these moments. False after RoPE if the moments before RoPE can be copied.
  bool accumulates_moments(VectorKind kind, VectorStage stage, std::int64_t layer) const;
  MomentRequest moment_request(VectorKind kind, VectorStage stage) const;
};

// Plans a run. Throws a bad-input error for layers or heads that do not exist in the model.
StatsRunPlan make_stats_run_plan(const StatsConfig& config, const ComputeOptions& compute,
                                 std::shared_ptr<ExternalEngine> engine = nullptr);

// Returns the settings that determine the statistics, as far as they are known without the model.
Json effective_stats_config(const StatsConfig& config);

// Fills post-RoPE moments of layers without RoPE from pre-RoPE moments. Call after all merges.
void copy_pre_to_post_rope_moments(Statistics& statistics);

// ---- Export files (docs/how-to/exports.md) used as input for all-key statistics (group C)

inline constexpr char kKeyScalesFile[] = "kv_scales.safetensors";  // of an fp8-kv export
inline constexpr char kKeyFiltersFile[] = "model.safetensors";     // of a q-filters export
// Returns the path of the file `name` of an export. `path` is that file or its folder.
std::string resolve_exported_file(const std::string& path, const char* name);

// ---- Retrieval scores: which heads copy an answer from a needle in a long text

// One decoding step of an answer.
struct NeedleDecodingStep {
  std::span<const std::int32_t> tokens;  // token ids of the text
  std::int64_t needle_begin = 0;
  std::int64_t needle_end = 0;
  std::int32_t answer = 0;  // the token that the row predicts
};

// Returns 1 / (needle length) if the key with the largest of `scores` (keys) lies in the needle and
// is the answer's token, else 0. The score of a head is the sum over all steps of an answer.
double score_retrieval_step(std::span<const float> scores, const NeedleDecodingStep& step);

// Runs the trials of the file stats.retrieval; returns none without a file. A line of the file is a
// JSON object {"text", "needle" or "needle_start" and "needle_end", "answer"}: the needle as text
// or as tokens [start, end) of the text, the answer as text or as a list of token ids.
std::vector<RetrievalTrial> run_retrieval_trials(const StatsRunPlan& plan, Backend& backend);

// Returns the number of trials in the file, 0 if there is no file. Malformed lines are bad input.
std::int64_t count_retrieval_trials(const StatsRunPlan& plan);

}  // namespace qkscope
