// Runs the analyses of the heads in a capture or in statistics: selects heads, reads the model's
// config.json, and groups query heads that share a key head (GQA).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/methods/moments.h"
#include "qkscope/analysis.h"
#include "qkscope/model.h"
#include "qkscope/statistics.h"

namespace qkscope {

// Returns the query heads selected by options.layers and options.heads, ascending. Throws a
// bad-input error for a layer or head that the capture lacks, with a list of available ones.
std::vector<HeadId> select_query_heads(const CaptureIndex& index, const AnalyzeOptions& options);

// Returns the attention window of a layer in tokens, or nullopt for full attention.
using WindowOfLayer = std::function<std::optional<std::int32_t>(int layer)>;

// Removes query heads in layers whose attention kind is not options.attention. Throws a bad-input
// error if no head remains.
void keep_heads_of_attention_kind(std::vector<HeadId>& queries, const AnalyzeOptions& options,
                                  const WindowOfLayer& window_of);

// Splits ID@REVISION; the revision of a checkpoint folder is "".
std::pair<std::string, std::string> split_model_name(const std::string& name);
// Head counts, RoPE and attention windows from config.json, for captures without metadata.
class ModelFacts {
 public:
  // `name`: checkpoint folder, model id, or ID@REVISION. Downloads only config.json from the Hub.
  ModelFacts(const std::string& name, bool quiet);

  HeadCounts head_counts() const;
  RopeInfo rope(int layer) const;
  std::optional<std::int32_t> window(int layer) const;

  // Throw a bad-input error if the capture cannot come from this model: different head counts, a
  // layer that the model does not have, or vectors of a different length.
  void check_head_counts(const HeadCounts& captured) const;
  void check_head(const HeadId& id, int head_dim, const std::string& file) const;

 private:
  std::string name_;
  ModelConfig model_;
};

// Query heads that share a key head (GQA): the key head is read and its moments computed once.
struct KeyHeadGroup {
  HeadId key;
  std::vector<std::size_t> heads;  // indices into AnalysisRun::heads
};

// lap() returns the seconds since the previous lap() or since construction.
class Stopwatch {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Runs the analyses of all groups on all cores and fills run.heads. `model` is null without
// --model. If a head fails, the error is stored in its report.
void analyze_key_head_groups(const AnalyzeOptions& options, const CaptureIndex& index,
                             const ModelFacts* model, const TextGroups& texts,
                             std::vector<KeyHeadGroup> groups, AnalysisRun& run);

// Rows of one head, and the analyses that define the axes of its scatter plots.
struct ScatterPlotInput {
  const CentredRows& queries;
  const CentredRows& keys;
  const PooledMoments& pooled;
  const PcaResult* pca;                          // null: not run
  const RotationResult* rotation;                // null: not run
  const std::vector<std::string>& query_tokens;  // shape (rows), or empty
  const std::vector<std::string>& key_tokens;
};

// Returns queries, then keys, at most `per_side` of each, evenly spaced by position. The result
// does not depend on the order of rows. `pairs`: number of complement planes with coordinates.
std::vector<ScatterPoint> sample_scatter_points(const ScatterPlotInput& source, int per_side,
                                                int pairs);

// Stores the error in the report and drops its partial results.
void mark_head_failed(HeadReport& report, ErrorKind kind, const std::string& message);

// Returns the attention window of a layer from the head file, else from the model, else nullopt.
std::optional<std::int32_t> window_of_layer(const HeadRows& rows, int layer,
                                            const ModelFacts* model);

// ---- Statistics (sums over every token) as input.

bool is_statistics_folder(const std::string& folder);

// Runs all analyses that need only sums; results that need individual rows are NaN.
AnalysisRun analyze_statistics(const AnalyzeOptions& options);

// Returns the tables attention, distance and key_channels of the chosen query heads. Leaves out
// tables for which the statistics have no data.
std::vector<ResultTable> statistics_tables(const Statistics& statistics, const std::string& label,
                                           const std::vector<HeadId>& queries);

}  // namespace qkscope
