// Queries and keys of one text from a forward pass, kept in host memory or recomputed layer by
// layer if they do not fit; and the attention of one head computed from them: single rows,
// statistics over sampled queries, and tiles of the (query, key) matrix at every zoom level.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

template <typename Key, typename Value>
class LruCache {
 public:
  // Returns the value and marks it as used; null if it is not in the cache.
  Value* find(const Key& key) {
    const auto found = std::ranges::find(entries_, key, &Entry::first);
    if (found == entries_.end()) return nullptr;
    entries_.splice(entries_.end(), entries_, found);
    return &entries_.back().second;
  }
  // Evicts the least recently used values until fewer than `size` remain.
  void evict_until_below(std::size_t size) {
    while (!entries_.empty() && entries_.size() >= size) entries_.pop_front();
  }
  Value& add(const Key& key, Value value) {
    return entries_.emplace_back(key, std::move(value)).second;
  }

 private:
  using Entry = std::pair<Key, Value>;
  std::list<Entry> entries_;  // the least recently used first
};

// Which queries, keys and residual streams stay in host memory; set before the forward pass.
struct QueryKeyStoragePlan {
  DType dtype = DType::f32;         // type of the stored q and k: the type the pass computes in
  std::int64_t layers = 0;          // layers with attention over the text
  std::int64_t kept_layers = 0;     // layers whose q and k are in memory at a time
  std::int64_t snapshot_step = 0;   // layers between residual snapshots; 0 if all layers are kept
  std::int64_t layer_bytes = 0;     // q and k of one layer
  std::int64_t residual_bytes = 0;  // residual stream before one layer
  std::int64_t pass_bytes = 0;      // host activations of the pass

  bool recomputes_layers() const { return snapshot_step > 0; }
  std::int64_t snapshot_count() const;  // number of residual streams kept
  std::int64_t memory_bytes() const;    // host memory of the run, activations of the pass included
};

// Plans the use of `memory` bytes: q and k of all layers, or of two layers plus as many residual
// snapshots as fit. Throws a bad-input error if two layers and one snapshot do not fit.
QueryKeyStoragePlan plan_query_key_storage(const ModelConfig& config, Device device, DType dtype,
                                           std::int64_t rows, std::int64_t memory);

// Returns a sentence for the user: what stays in memory, its size, and what is recomputed.
std::string describe_storage_plan(const QueryKeyStoragePlan& plan);

// Queries and keys of one layer after RoPE, in the plan's dtype.
struct LayerVectors {
  Tensor q;  // (n_heads, rows, d_head)
  Tensor k;  // (n_kv_heads, rows, d_head)
};

// Contiguous queries and keys of one head in float32.
struct HeadVectors {
  const float* q = nullptr;  // (rows, d_head)
  const float* k = nullptr;  // (rows, d_head)
  std::shared_ptr<const void> memory;
};

// Queries and keys of one text, kept or recomputed by layer. Not thread-safe: callers need a lock.
class QueryKeyStore {
 public:
  // Runs the forward pass, then releases `model` unless the plan recomputes layers.
  QueryKeyStore(std::shared_ptr<const Model> model, std::span<const std::int32_t> ids,
                const QueryKeyStoragePlan& plan, bool quiet);

  const ModelConfig& config() const { return config_; }
  std::int64_t rows() const { return batch_.rows(); }
  const QueryKeyStoragePlan& plan() const { return plan_; }
  bool has_layer(std::int64_t layer) const;
  std::span<const float> sinks(std::int64_t layer) const {  // (n_heads) or empty
    return sinks_[static_cast<std::size_t>(layer)];
  }
  // Recomputes the layer if it is not in memory.
  HeadVectors head_vectors(std::int64_t layer, std::int64_t head);

 private:
  class LayerRecorder;

  std::shared_ptr<const LayerVectors> layer_vectors(std::int64_t layer);
  void run_forward_pass(Observer& observer, std::int64_t first_layer) const;

  std::shared_ptr<const Model> model_;
  ModelConfig config_;
  Batch batch_;
  QueryKeyStoragePlan plan_;
  std::vector<std::vector<float>> sinks_;     // (n_layers) of (n_heads) or empty
  std::map<std::int64_t, Tensor> snapshots_;  // (rows, d_model) by layer
  LruCache<std::int64_t, std::shared_ptr<const LayerVectors>> layers_;
  // Cache of q and k (rows, d_head) converted from 16 bits to float32, by (layer, head).
  LruCache<std::pair<std::int64_t, std::int64_t>, std::shared_ptr<const LayerVectors>> widened_;
};

// Attention of one query. Scores and pattern are bit-identical to `qkscope trace` on the CPU.
struct AttentionRow {
  std::int64_t first_key = 0;  // first visible key; the last one is the query itself
  std::vector<float> scores;   // (visible keys)
  std::vector<float> pattern;  // (visible keys)
  double log_sum_exp = 0;      // of the scores, a learned sink included
  double entropy = 0;          // nats, of the visible keys
  double first_token = 0;      // attention on position 0 (the attention sink); 0 if invisible
  double distance = 0;         // mean distance to the keys, weighted by attention
  // Mean score by rotary frequency over the visible keys, before the soft cap, weighted by
  // attention or unweighted. Shape (rotary pairs); empty on NoPE layers.
  std::vector<float> attended_by_frequency;
  std::vector<float> mean_by_frequency;
};

// Statistics of a head, averaged over sampled queries.
struct HeadStatistics {
  static constexpr const char* kNames[] = {"entropy", "sink_0",        "prev",
                                           "self",    "distance_mean", "top1"};
  static constexpr std::size_t kCount = std::size(kNames);
  float values[kCount] = {};
};

enum class ReduceOp { largest, sum };
inline void accumulate_in_cell(float& cell, float value, ReduceOp kind) {
  cell = kind == ReduceOp::largest ? std::max(cell, value) : cell + value;
}

// A square tile of cells. Cell (i, j) covers queries [first_query + i * width, ...) and keys
// [first_key + j * width, ...), where width = 2^level tokens.
struct AttentionTile {
  std::vector<float> cells;  // (kTileCells, kTileCells); 0 above the diagonal and beyond the text
  bool exact = true;         // false: a preview from one query per row of cells
};
inline constexpr std::int64_t kTileCells = 256;
inline constexpr std::int64_t kOverviewCells = 2048;  // maximum number of cells per side

// Bytes of a HeadAttention: packed keys, log-sum-exps, and two downsampled attention matrices.
constexpr std::int64_t head_attention_bytes(std::int64_t rows, std::int64_t d_head) {
  return 4 * (rows * (d_head + 1) + 2 * kOverviewCells * kOverviewCells);
}

using KeyInterval = std::pair<std::int64_t, std::int64_t>;  // [first, second)

// Attention of one head. Not thread-safe.
class HeadAttention {
 public:
  HeadAttention(QueryKeyStore& store, std::int64_t layer, std::int64_t head);

  AttentionRow row(std::int64_t query);
  HeadStatistics statistics(std::int64_t samples);  // over evenly spaced queries

  // Returns tile (row, column) of a zoom level. A tile at overview_level() or above comes from the
  // overview, or is a preview until its queries are in the overview; finer tiles are always exact.
  AttentionTile tile(int level, std::int64_t row, std::int64_t column, ReduceOp value);
  // Adds rows to the overview (downsampled matrix) for `budget_seconds`; returns the fraction done.
  double compute_overview_part(double budget_seconds);
  int overview_level() const { return overview_level_; }
  std::int64_t cells_per_side(int level) const { return ((rows() - 1) >> level) + 1; }
  // Returns (side, side) overview cells starting at cell (row, column); level >= overview_level().
  std::vector<float> overview_cells(int level, std::int64_t row, std::int64_t column,
                                    std::int64_t side, ReduceOp value) const;

 private:
  // Indices of `count` queries: first, first + step, ...
  struct QueryRange {
    std::int64_t first;
    std::int64_t step;
    std::int64_t count;
    std::int64_t query(std::int64_t i) const { return first + i * step; }
  };
  // Receives a query index, its attention to a range of keys, and the range; must be thread-safe.
  using RowVisitor = std::function<void(std::int64_t, std::span<const float>, KeyInterval)>;

  std::int64_t rows() const { return store_.rows(); }
  // Sets q_ and k_ to the head's vectors, which stay valid while the returned object exists.
  [[nodiscard]] HeadVectors load_head_vectors();
  void pack_keys();
  void compute_scores(const QueryRange& queries, std::int64_t begin, std::int64_t end,
                      float* out) const;
  // Replaces the scores of a query in `row`, which starts at key `origin`, with attention weights.
  // Returns the range of visible keys in `keys`. If the query has no stored log-sum-exp, `row` must
  // contain the scores of all visible keys.
  KeyInterval replace_scores_with_attention(std::int64_t query, float* row, std::int64_t origin,
                                            KeyInterval keys);
  // Calls `visit` with the attention of each query to keys [begin, end). Computes a row over all
  // keys if the query has no stored log-sum-exp.
  void visit_rows(const QueryRange& queries, std::int64_t begin, std::int64_t end,
                  const RowVisitor& visit);
  void add_frequency_scores(std::int64_t query, AttentionRow& row) const;
  // Computes a tile from q and k; a `preview` uses only one query per row of cells.
  AttentionTile compute_tile(int level, std::int64_t row, std::int64_t column, ReduceOp value,
                             bool preview);

  QueryKeyStore& store_;
  std::int64_t layer_;
  std::int64_t head_;
  const float* q_ = nullptr;  // (rows, d_head), valid during a call
  const float* k_ = nullptr;  // (rows, d_head), valid during a call
  float scale_;
  float softcap_;
  std::int64_t window_;
  std::int64_t chunk_;
  std::span<const float> sink_;     // the learned sink of the head, or empty
  std::vector<float> packed_keys_;  // keys as the right operand of gemm.h
  std::vector<float> log_sum_exp_;  // (rows); NaN: not computed yet
  int overview_level_ = 0;          // the overview has up to kOverviewCells per side
  std::int64_t query_block_ = 0;    // queries per task: whole rows of cells
  std::vector<float> largest_;      // (cells, cells) of overview_level_
  std::vector<float> sum_;          // (cells, cells) of overview_level_
  std::int64_t overview_rows_ = 0;  // queries that the overview contains
};

}  // namespace qkscope
