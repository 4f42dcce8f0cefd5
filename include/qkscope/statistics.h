// Statistics over every token: sums of the query, key and value vectors of all heads, and of the
// attention they pay, added up during the forward pass. docs/statistics.md defines each of them.
//
//   auto config = qkscope::read_stats_config("run.yaml");
//   auto result = qkscope::run_stats(qkscope::make_stats_plan(config));
//   auto statistics = qkscope::read_statistics(config.run.output.data_root);
//
// A run that was stopped or killed continues where it was when it is started again.
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

// ---- What is summed ----

enum class VectorKind : std::uint8_t { query, key, value };
enum class VectorStage : std::uint8_t {
  pre,   // after the projection's bias and the q/k norm, before RoPE; the only one of values
  post,  // what enters the dot product
};
// The first tokens of a document are kept apart from the others: they hold outliers.
enum class RowSet : std::uint8_t { first, body };

QKSCOPE_API std::string_view kind_name(VectorKind kind);     // "q", "k", "v"
QKSCOPE_API std::string_view stage_name(VectorStage stage);  // "pre", "post"
QKSCOPE_API std::string_view set_name(RowSet set);           // "first", "body"

// Sums of positions t and of u = log2(t + 1) over some rows.
struct PositionSums {
  std::int64_t n = 0;
  double t_mean = 0;
  double t_m2 = 0;  // sum (t - mean t)^2
  double u_mean = 0;
  double u_m2 = 0;   // sum (u - mean u)^2
  double tu_m2 = 0;  // sum (t - mean t)(u - mean u)
};

// The place of (i, j), i <= j, in the upper triangle by rows of a symmetric matrix.
constexpr std::int64_t triangle_size(std::int64_t dim) {
  return dim * (dim + 1) / 2;
}
constexpr std::int64_t triangle_index(std::int64_t dim, std::int64_t i, std::int64_t j) {
  return i * dim - i * (i - 1) / 2 + (j - i);
}

// Sums over one set of rows, for all heads of one layer, kind and stage.
struct HeadMoments {
  std::int64_t heads = 0;
  std::int64_t dim = 0;
  std::int64_t pairs = 0;         // rotary pairs; 0 where pair_abs is not kept
  PositionSums positions;         // of the rows; positions.n rows, the same for all heads
  std::vector<double> mean;       // (heads, dim)
  std::vector<double> m2;         // (heads, triangle): sum (x - mean)(x - mean)^T
  std::vector<double> ct;         // (heads, dim): sum (x - mean)(t - mean t)
  std::vector<double> cu;         // (heads, dim): sum (x - mean)(u - mean u)
  std::vector<double> m3;         // (heads, dim): sum (x - mean)^3
  std::vector<double> m4;         // (heads, dim): sum (x - mean)^4
  std::vector<float> min;         // (heads, dim); +infinity where there is no row
  std::vector<float> max;         // (heads, dim); -infinity where there is no row
  std::vector<double> pair_abs;   // (heads, pairs): mean of sqrt(x_a^2 + x_b^2)
  std::vector<double> norm_mean;  // (heads): of the row's Euclidean length
  std::vector<float> norm_max;    // (heads)

  std::int64_t n() const { return positions.n; }
};

// Sums per bucket of positions, first and body together.
struct BucketMoments {
  std::int64_t heads = 0;
  std::int64_t buckets = 0;
  std::int64_t dim = 0;
  std::vector<std::int64_t> n;  // (buckets) rows
  std::vector<double> mean;     // (heads, buckets, dim)
  std::vector<double> m2;       // (heads, buckets, dim): sum (x - mean)^2
  std::vector<double> cov;      // (heads, buckets, triangle): full M2; empty where not asked for
};

// All of one layer, kind and stage.
struct LayerMoments {
  HeadMoments first;
  HeadMoments body;
  BucketMoments buckets;
};

// first and body together.
QKSCOPE_API HeadMoments all_rows(const LayerMoments& moments);

// ---- Settings: the section `stats` of a configuration ----

// Keys that stand in for the model's in group C, for the divergence they cause.
struct KeyReplacement {
  enum class Scheme : std::uint8_t { fp8, int8, int4 };
  // What shares a scale; exported: those of an fp8-kv export.
  enum class Scale : std::uint8_t { channel, token, group, head, exported };
  Scheme scheme = Scheme::fp8;
  Scale scale = Scale::head;
  std::int64_t group = 0;  // channels that share a scale, with Scale::group
  std::string name;        // "fp8", "fp8_exported", "int8_channel", "int4_group_32"
};

// A set of kept keys that does not depend on the query.
struct KeptKeys {
  // filtered_keys: those with the best score of q-filters.
  enum class Rule : std::uint8_t { ends, short_keys, filtered_keys };
  Rule rule = Rule::ends;
  std::int64_t first = 0;  // ends: the first so many
  std::int64_t last = 0;   // and the last so many of a query's keys
  double share = 0;        // short_keys, filtered_keys: this share of a document's keys
  std::string name;        // "first_4_last_256", "short_50", "qfilter_50"
};

struct StatisticsSettings {
  bool moments = true;                              // group A
  bool near_keys = false;                           // group B
  bool all_keys = false;                            // group C, which implies B
  std::vector<VectorKind> kinds;                    // of group A; empty: all
  std::vector<VectorStage> stages;                  // of group A; empty: all
  std::optional<std::vector<std::int64_t>> layers;  // of group A; none: all
  std::int64_t first = 4;                           // tokens of a document kept apart
  std::int64_t buckets = 16;
  std::int64_t bucket_size = 0;  // positions; 0: max_length / buckets, rounded up
  std::vector<VectorKind> bucket_covariance;
  std::int64_t window = 256;  // near keys, a power of two up to 4096
  std::int64_t stream_first = 128;
  std::int64_t stream_last = 256;
  std::vector<LayerHead> columns;  // heads whose key sums are kept whole
  std::vector<KeyReplacement> kl;
  std::vector<KeptKeys> keep;
  std::string fp8_scales;       // an fp8-kv export, for the replacement fp8_exported
  std::string q_filters;        // a q-filters export, for kept keys of that rule
  std::int64_t exact_rows = 0;  // of each document, whose keys_ and top_ are found by sorting
  std::string retrieval;        // a file of trials; "": none
  double min_match = 0.5;       // retrieval: trials with fewer greedy tokens do not count
};

// ---- Groups B and C ----

// Over rows, per layer, query head and bucket of query positions. A column's number is its place in
// `columns`; src/engine/statistics/attention_sums.h has the table of them.
struct AttentionStatistics {
  std::vector<std::string> columns;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t buckets = 0;
  std::int64_t documents = 0;
  std::vector<std::int64_t> rows;  // (buckets)
  std::vector<double> sum;         // (layers, heads, buckets, columns)
  std::vector<double> square;      // (layers, heads, buckets, columns): sums of squares
  std::vector<float> max_logit;    // (layers, heads, buckets): the largest
  // Over documents, for standard errors; the last bucket is the whole document.
  std::vector<double> row_square;  // (buckets + 1): sum of rows^2
  std::vector<double>
      document_square;  // (layers, heads, buckets + 1, columns): sum of (document's sum)^2
  std::vector<double> document_cross;  // (layers, heads, buckets + 1, columns): sum of sum * rows
  // Sums over documents of a value per document: docs with no such value do not count.
  std::vector<std::string> document_columns;
  std::vector<std::int64_t> document_counts;  // (document_columns)
  std::vector<double> document_sum;           // (layers, heads, document_columns)
  std::vector<double> document_sum_square;    // (layers, heads, document_columns)
  // Group C: sums over the keys of each bucket of key positions, of col_j and of col_j / (N - j).
  std::vector<double> key_mass;      // (layers, heads, buckets); empty without group C
  std::vector<double> key_observed;  // (layers, heads, buckets)

  bool empty() const { return columns.empty(); }
};

// One document's share of the above.
struct DocumentAttention {
  std::int64_t example_key = 0;
  std::int64_t tokens = 0;
  std::vector<double> mean;                   // (layers, heads, columns): over the document's rows
  std::vector<double> values;                 // (layers, heads, document_columns); NaN: none
  std::vector<std::vector<double>> key_sums;  // (settings.columns), each (tokens): col_j
};

// Documents one after another, so that memory does not grow with their number.
class QKSCOPE_API DocumentSource {
 public:
  virtual ~DocumentSource() = default;
  virtual bool next(DocumentAttention& document) = 0;  // false after the last one
};

struct RetrievalTrial {
  std::string id;
  std::int64_t tokens = 0;
  std::int64_t needle_begin = 0;
  std::int64_t needle_end = 0;
  double greedy_match = 0;    // share of the answer's tokens that greedy decoding gives
  bool counts = false;        // greedy_match is at least min_match
  std::vector<double> score;  // (layers, heads)
};

// ---- A finished folder ----

struct Statistics {
  // What they are of. `metadata` is the file's: model, revision, commit, dtype, device, rope_style,
  // program version, configuration hash.
  Metadata metadata;
  std::string configuration;    // JSON: what decides the numbers; folders that differ do not merge
  StatisticsSettings settings;  // bucket_size is set
  std::int64_t max_length = 0;  // tokens of the longest document that can occur
  std::int64_t heads = 0;       // query heads
  std::int64_t key_heads = 0;
  std::int64_t dim = 0;
  std::vector<std::int64_t> layers;   // of the model, those that run on text, ascending
  std::vector<std::string> ropes;     // (layers) a JSON object or "none"
  std::vector<std::int64_t> rotary;   // (layers) rotary dimensions; 0 on NoPE layers
  std::vector<std::int64_t> windows;  // (layers) 0 on full attention
  bool interleaved = false;           // rotary pairs (2i, 2i+1)
  std::vector<std::int64_t> lengths;  // tokens of each document, in dataset order

  // Group A: moments[kind, stage], one per entry of moment_layers; empty where not kept. On layers
  // where post is pre both are there.
  std::vector<std::int64_t> moment_layers;  // ascending
  std::map<std::pair<VectorKind, VectorStage>, std::vector<LayerMoments>> moments;
  // From the list of lengths in integer arithmetic.
  std::array<PositionSums, 2> positions;       // by RowSet
  std::vector<PositionSums> bucket_positions;  // (buckets)

  AttentionStatistics attention;  // groups B and C
  std::vector<RetrievalTrial> retrieval;

  const LayerMoments* find(VectorKind kind, VectorStage stage, std::int64_t layer) const;
};

QKSCOPE_API Statistics read_statistics(const std::string& folder);

// ---- Making them ----

struct StatsConfig {
  CaptureConfig run;  // dataset, model, tokenizer, inference and output.data_root
  StatisticsSettings stats;
};

// As read_capture_config(); the sections capture and output.hf_* are not used.
QKSCOPE_API StatsConfig read_stats_config(const std::string& file,
                                          const std::vector<std::string>& overrides = {});
QKSCOPE_API StatsConfig parse_stats_config(const std::string& yaml,
                                           const std::vector<std::string>& overrides = {});

struct StatsRunPlan;  // the library's own

// Made by make_stats_plan(). Copies share what they hold.
class QKSCOPE_API StatsPlan {
 public:
  explicit StatsPlan(std::shared_ptr<const StatsRunPlan> plan);

  const StatsConfig& config() const;
  const ModelConfig& model() const;
  Device device() const;        // the first, where there are several
  std::size_t workers() const;  // how many devices share the texts
  DType dtype() const;
  const MemoryPlan& memory() const;

  const StatsRunPlan& run_plan() const { return *plan_; }

 private:
  std::shared_ptr<const StatsRunPlan> plan_;
};

QKSCOPE_API StatsPlan make_stats_plan(const StatsConfig& config,
                                      const ComputeOptions& compute = {});

struct StatsDryRun {
  std::int64_t examples = 0;
  std::int64_t truncated = 0;
  std::int64_t tokens = 0;
  std::int64_t longest = 0;       // tokens
  std::int64_t trials = 0;        // of retrieval
  std::int64_t state_bytes = 0;   // accumulators on the host
  std::int64_t device_bytes = 0;  // more on the device than without statistics
  double forward_flop = 0;        // of the forward pass
  double moments_flop = 0;        // of group A
  double near_flop = 0;           // of group B
  double all_flop = 0;            // of group C
};

QKSCOPE_API StatsDryRun dry_run_stats(const StatsPlan& plan, const Shard& shard = {});
QKSCOPE_API std::string plan_json(const StatsPlan& plan, const StatsDryRun& dry);

struct StatsProgress {
  std::int64_t examples = 0;  // done, those of earlier runs counted in
  std::int64_t total = 0;     // 0: not known
  std::int64_t tokens = 0;
};

struct StatsOptions {
  Shard shard;
  bool overwrite = false;
  bool quiet = false;
  const std::atomic<bool>* stop = nullptr;  // when it becomes true the run ends after its batch
  std::function<void(const StatsProgress&)> on_batch = {};
};

struct StatsResult {
  CaptureResult::Outcome outcome = CaptureResult::Outcome::finished;
  std::int64_t examples = 0;
  std::int64_t tokens = 0;
  double seconds = 0.0;          // of this call, and of those:
  double load_seconds = 0.0;     // until the model was ready
  double forward_seconds = 0.0;  // in the forward pass with its statistics
};

QKSCOPE_API std::string result_json(const StatsResult& result);

// Writes into config.run.output.data_root, which one run at a time may write to.
QKSCOPE_API StatsResult run_stats(const StatsPlan& plan, const StatsOptions& options = {});

// Whether the folder holds statistics, finished or in parts.
QKSCOPE_API bool holds_statistics(const std::string& folder);

// Makes the final files of statistics in shards once every shard is complete.
QKSCOPE_API StatsResult merge_stats_shards(const std::string& folder);

// Joins finished folders, in this order, into a new one. They must be of the same commit, dtype,
// first, buckets and RoPE; what differs is named.
QKSCOPE_API StatsResult merge_stats_folders(const std::vector<std::string>& folders,
                                            const std::string& out);

}  // namespace qkscope
