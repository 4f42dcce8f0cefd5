// Statistics over every token: moments of the query, key and value vectors of all heads and sums of
// their attention, accumulated during the forward pass. docs/reference/statistics.md defines each
// statistic.
//
//   auto config = qkscope::read_stats_config("run.yaml");
//   auto result = qkscope::run_stats(qkscope::make_stats_plan(config));
//   auto statistics = qkscope::read_statistics(config.run.output.data_root);
//
// A run that was stopped or killed resumes when it is started again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkscope/capture.h"
#include "qkscope/captures.h"
#include "qkscope/version.h"

namespace qkscope {

// ---- Moments (group A) ----

enum class VectorKind : std::uint8_t { query, key, value };
enum class VectorStage : std::uint8_t {
  pre,   // after projection bias and q/k norm, before RoPE; values have only this stage
  post,  // as used in the dot product
};
// The first tokens of a document contain outliers and are summed separately from the body.
enum class RowSet : std::uint8_t { first, body };

QKSCOPE_API std::string_view kind_name(VectorKind kind);     // "q", "k", "v"
QKSCOPE_API std::string_view stage_name(VectorStage stage);  // "pre", "post"
QKSCOPE_API std::string_view set_name(RowSet set);           // "first", "body"

// Moments of the position t and of u = log2(t + 1) over a set of rows.
struct PositionSums {
  std::int64_t n = 0;
  double t_mean = 0;
  double t_m2 = 0;  // sum (t - mean t)^2
  double u_mean = 0;
  double u_m2 = 0;   // sum (u - mean u)^2
  double tu_m2 = 0;  // sum (t - mean t)(u - mean u)
};

// Upper triangle of a symmetric matrix stored by rows: its size, and the index of (i, j), i <= j.
constexpr std::int64_t triangle_size(std::int64_t dim) {
  return dim * (dim + 1) / 2;
}
constexpr std::int64_t triangle_index(std::int64_t dim, std::int64_t i, std::int64_t j) {
  return i * dim - i * (i - 1) / 2 + (j - i);
}

// Moments of rows, for all heads of one layer, kind (q, k, v) and stage (before or after RoPE).
struct HeadMoments {
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  std::int64_t pairs = 0;         // rotary pairs; 0 if pair_abs is not stored
  PositionSums positions;         // of the rows, equal for all heads
  std::vector<double> mean;       // (heads, dim)
  std::vector<double> m2;         // (heads, triangle): sum (x - mean)(x - mean)^T
  std::vector<double> ct;         // (heads, dim): sum (x - mean)(t - mean t)
  std::vector<double> cu;         // (heads, dim): sum (x - mean)(u - mean u)
  std::vector<double> m3;         // (heads, dim): sum (x - mean)^3
  std::vector<double> m4;         // (heads, dim): sum (x - mean)^4
  std::vector<float> min;         // (heads, dim); +infinity without rows
  std::vector<float> max;         // (heads, dim); -infinity without rows
  std::vector<double> pair_abs;   // (heads, pairs): mean of sqrt(x_a^2 + x_b^2)
  std::vector<double> norm_mean;  // (heads): mean L2 norm
  std::vector<float> norm_max;    // (heads): largest L2 norm

  std::int64_t n() const { return positions.n; }
};

// Moments per bucket of positions, over all rows (RowSet::first and RowSet::body).
struct BucketMoments {
  std::int64_t heads = 0;
  std::int64_t buckets = 0;
  std::int64_t dim = 0;
  std::vector<std::int64_t> n;  // (buckets) rows
  std::vector<double> mean;     // (heads, buckets, dim)
  std::vector<double> m2;       // (heads, buckets, dim): sum (x - mean)^2
  std::vector<double> cov;      // (heads, buckets, triangle): full M2; empty unless configured
};

// Moments of one layer, kind and stage.
struct LayerMoments {
  HeadMoments first;
  HeadMoments body;
  BucketMoments buckets;
};

// Merges first and body.
QKSCOPE_API HeadMoments all_rows(const LayerMoments& moments);

// ---- Settings: the section `stats` of a configuration ----

// A quantization of keys. The all-keys statistics (group C) measure the KL divergence of attention
// with quantized keys from attention with the original keys.
struct KeyReplacement {
  enum class Scheme : std::uint8_t { fp8, int8, int4 };
  // Granularity of the scales; `exported` reads the scales from an fp8-kv export.
  enum class Scale : std::uint8_t { channel, token, group, head, exported };
  Scheme scheme = Scheme::fp8;
  Scale scale = Scale::head;
  std::int64_t group = 0;  // channels that share a scale, with Scale::group
  std::string name;        // "fp8", "fp8_exported", "int8_channel", "int4_group_32"
};

// Keys that a KV cache eviction policy would keep, whatever the content of the query. The all-keys
// statistics (group C) measure the attention mass on these keys.
struct KeptKeys {
  // ends: first and last keys; short_keys: smallest L2 norm; filtered_keys: best q-filter score.
  enum class Rule : std::uint8_t { ends, short_keys, filtered_keys };
  Rule rule = Rule::ends;
  std::int64_t first = 0;  // ends: number of first keys
  std::int64_t last = 0;   // ends: number of last keys of a query
  double share = 0;        // short_keys, filtered_keys: fraction of a document's keys
  std::string name;        // "first_4_last_256", "short_50", "qfilter_50"
};

// Section `stats` of a configuration.
struct StatisticsSettings {
  bool moments = true;                              // group A
  bool near_keys = false;                           // group B
  bool all_keys = false;                            // group C; implies B
  double all_keys_rows = 1;                         // fraction of the queries that group C uses
  std::int64_t seed = 0;                            // of the queries drawn for group C
  std::vector<VectorKind> kinds;                    // of group A; empty: all
  std::vector<VectorStage> stages;                  // of group A; empty: all
  std::optional<std::vector<std::int64_t>> layers;  // of group A; nullopt: all
  std::int64_t first = 4;                           // tokens of a document in RowSet::first
  std::int64_t buckets = 16;
  std::int64_t bucket_size = 0;  // positions; 0: max_length / buckets, rounded up
  std::vector<VectorKind> bucket_covariance;
  std::int64_t window = 256;  // number of near keys, a power of two up to 4096
  std::int64_t stream_first = 128;
  std::int64_t stream_last = 256;
  std::vector<LayerHead> columns;  // heads whose key sums are stored per token
  std::vector<KeyReplacement> kl;
  std::vector<KeptKeys> keep;
  std::string fp8_scales;       // fp8-kv export for the replacement fp8_exported
  std::string q_filters;        // q-filters export for the rule filtered_keys
  std::int64_t exact_rows = 0;  // rows per document whose keys_ and top_ columns are exact
  std::string retrieval;        // file of trials; "": none
  double min_match = 0.5;       // retrieval: minimal greedy_match of a counted trial
};

// ---- Attention: statistics of near keys (group B) and of all keys (group C) ----

// Attention sums over query rows, per layer, query head and bucket of query positions.
// src/engine/statistics/attention_sums.h defines the columns.
struct AttentionStatistics {
  std::vector<std::string> columns;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t buckets = 0;
  std::int64_t documents = 0;
  std::vector<std::int64_t> rows;  // (buckets)
  std::vector<double> sum;         // (layers, heads, buckets, columns)
  std::vector<double> square;      // (layers, heads, buckets, columns): sums of squares
  std::vector<float> max_logit;    // (layers, heads, buckets): largest logit
  // Sums over documents, for standard errors; the additional last bucket covers whole documents.
  std::vector<double> row_square;       // (buckets + 1): sum of rows^2
  std::vector<double> document_square;  // (layers, heads, buckets + 1, columns): sum^2 per document
  std::vector<double> document_cross;   // (layers, heads, buckets + 1, columns): sum * rows
  // Sums of the per-document values named in document_columns, over documents that have a value.
  std::vector<std::string> document_columns;
  std::vector<std::int64_t> document_counts;  // (document_columns)
  std::vector<double> document_sum;           // (layers, heads, document_columns)
  std::vector<double> document_sum_square;    // (layers, heads, document_columns)
  // All-keys statistics (group C) of all queries, summed over the keys j of each bucket of key
  // positions: the attention that key j receives from all N queries of the document, and that
  // attention divided by the N - j queries that can see the key.
  std::vector<double> key_mass;  // (layers, heads, buckets); empty unless group C uses all queries
  std::vector<double> key_observed;  // (layers, heads, buckets)

  bool empty() const { return columns.empty(); }
};

// Attention statistics of one document.
struct DocumentAttention {
  std::int64_t example_key = 0;
  std::int64_t tokens = 0;
  std::vector<double> mean;    // (layers, heads, columns): mean over rows
  std::vector<double> values;  // (layers, heads, document_columns); NaN: no value
  // Attention that each key receives: one vector of shape (tokens) per head in settings.columns.
  std::vector<std::vector<double>> key_sums;
};

// Streams the attention statistics of documents one at a time, so that memory use does not grow
// with the number of documents.
class QKSCOPE_API DocumentSource {
 public:
  virtual ~DocumentSource() = default;
  virtual bool next(DocumentAttention& document) = 0;  // returns false after the last document
};

// Result of one needle-in-a-haystack trial.
struct RetrievalTrial {
  std::string id;
  std::int64_t tokens = 0;
  std::int64_t needle_begin = 0;
  std::int64_t needle_end = 0;
  double greedy_match = 0;    // fraction of answer tokens that greedy decoding reproduces
  bool counts = false;        // greedy_match is at least min_match
  std::vector<double> score;  // (layers, heads)
};

// ---- Finished statistics ----

// Content of a finished folder.
struct Statistics {
  // Model, revision, commit, dtype, device, rope_style, program version and configuration hash.
  Metadata metadata;
  std::string configuration;    // JSON identity of the run
  StatisticsSettings settings;  // bucket_size is set
  std::int64_t max_length = 0;  // tokens; upper limit of document length
  std::int64_t heads = 0;       // query heads
  std::int64_t key_heads = 0;
  std::int64_t dim = 0;
  std::vector<std::int64_t> layers;   // ascending, without cross-attention layers
  std::vector<std::string> ropes;     // (layers) a JSON object or "none"
  std::vector<std::int64_t> rotary;   // (layers) rotary dimensions; 0 for NoPE layers
  std::vector<std::int64_t> windows;  // (layers) 0 for full attention
  bool interleaved = false;           // rotary pairs (2i, 2i+1)
  std::vector<std::int64_t> lengths;  // tokens of each document, in dataset order

  // Moments (group A): moments[kind, stage] has one entry per element of moment_layers. Pairs of
  // kind and stage not in the settings are absent. Without RoPE, stages pre and post are equal.
  std::vector<std::int64_t> moment_layers;  // ascending
  std::map<std::pair<VectorKind, VectorStage>, std::vector<LayerMoments>> moments;
  // Moments of token positions, computed from `lengths` in exact integer arithmetic.
  std::array<PositionSums, 2> positions;       // by RowSet
  std::vector<PositionSums> bucket_positions;  // (buckets)

  AttentionStatistics attention;  // groups B and C
  std::vector<RetrievalTrial> retrieval;

  const LayerMoments* find(VectorKind kind, VectorStage stage, std::int64_t layer) const;
};

// Reads finished statistics. Throws a bad-input error if a file is missing or damaged.
QKSCOPE_API Statistics read_statistics(const std::string& folder);

// ---- Run ----

// Configuration of statistics.
struct StatsConfig {
  CaptureConfig run;  // dataset, model, tokenizer, inference and output.data_root
  StatisticsSettings stats;
};

// Read a statistics configuration like read_capture_config() and parse_capture_config(), but the
// section `capture` and output.hf_* are ignored.
QKSCOPE_API StatsConfig read_stats_config(const std::string& file,
                                          const std::vector<std::string>& overrides = {});
QKSCOPE_API StatsConfig parse_stats_config(const std::string& yaml,
                                           const std::vector<std::string>& overrides = {});

struct StatsRunPlan;  // internal

// Plan of a statistics run, created by make_stats_plan(). Copies refer to the same plan.
class QKSCOPE_API StatsPlan {
 public:
  explicit StatsPlan(std::shared_ptr<const StatsRunPlan> plan);

  const StatsConfig& config() const { return *config_; }
  const ModelConfig& model() const { return run_.model(); }
  Device device() const { return run_.device(); }         // the first of several devices
  std::size_t workers() const { return run_.workers(); }  // number of devices
  DType dtype() const { return run_.dtype(); }
  const MemoryPlan& memory() const { return run_.memory(); }

  const StatsRunPlan& run_plan() const { return *plan_; }

 private:
  std::shared_ptr<const StatsRunPlan> plan_;
  const StatsConfig* config_;
  CapturePlan run_;
};

// Plans a statistics run. Throws a bad-input error if the run does not fit the model or the device.
QKSCOPE_API StatsPlan make_stats_plan(const StatsConfig& config,
                                      const ComputeOptions& compute = {});

// Predicted cost of a statistics run.
struct StatsDryRun {
  std::int64_t examples = 0;
  std::int64_t truncated = 0;
  std::int64_t tokens = 0;
  std::int64_t longest = 0;         // tokens
  std::int64_t trials = 0;          // retrieval trials
  std::int64_t state_bytes = 0;     // accumulators on the host
  std::int64_t device_bytes = 0;    // additional device memory for statistics
  double forward_flop = 0;          // of the forward pass
  double moments_flop = 0;          // of group A
  double near_flop = 0;             // of group B
  double all_flop = 0;              // of group C
  std::int64_t dropped_chunks = 0;  // last chunks of texts, shorter than chunk.min_length
};

// Tokenizes the texts of a shard and predicts the cost of a run without running the model.
QKSCOPE_API StatsDryRun dry_run_stats(const StatsPlan& plan, const Shard& shard = {});
// Returns a JSON object with the fields of `dry` and the plan's model, data root and settings.
QKSCOPE_API std::string plan_json(const StatsPlan& plan, const StatsDryRun& dry);

// Passed to StatsOptions::on_batch.
struct StatsProgress {
  std::int64_t examples = 0;  // stored, including those of earlier processes
  std::int64_t total = 0;     // 0: unknown
  std::int64_t tokens = 0;
};

// Options of run_stats(); see CaptureOptions.
struct StatsOptions {
  Shard shard;
  bool overwrite = false;
  bool quiet = false;
  const std::atomic<bool>* stop = nullptr;  // set to true to end the run after the current batch
  std::function<void(const StatsProgress&)> on_batch = {};
};

// Result of run_stats() and the merge functions.
struct StatsResult {
  CaptureResult::Outcome outcome = CaptureResult::Outcome::finished;
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  double seconds = 0.0;          // of the whole call, which includes:
  double load_seconds = 0.0;     // until the model was ready
  double forward_seconds = 0.0;  // in forward passes with statistics
};

// Returns a JSON object with outcome, examples, tokens and seconds.
QKSCOPE_API std::string result_json(const StatsResult& result);

// Runs or resumes statistics into config.run.output.data_root. Throws a bad-input error if another
// process is writing to that folder.
QKSCOPE_API StatsResult run_stats(const StatsPlan& plan, const StatsOptions& options = {});

// Returns true if the folder or store address contains statistics, finished or incomplete.
QKSCOPE_API bool holds_statistics(const std::string& folder);

// Writes the final files of a sharded statistics run once every shard is complete. Throws a
// bad-input error that names the missing shards.
QKSCOPE_API StatsResult merge_stats_shards(const std::string& folder);

// Merges finished folders in the given order into a new folder. Throws a bad-input error if they
// differ in model, commit, dtype, settings, RoPE, heads or layers.
QKSCOPE_API StatsResult merge_stats_folders(const std::vector<std::string>& folders,
                                            const std::string& out);

}  // namespace qkscope
