// The sums of a statistics run, their file format, and the forward passes that accumulate them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capture/run/batch_reader.h"
#include "capture/stats_run/stats_plan.h"
#include "engine/device/backend.h"
#include "engine/forward/forward.h"
#include "engine/model/loaded_checkpoint.h"
#include "qkscope/experimental/engine.h"
#include "qkscope/model.h"
#include "qkscope/statistics.h"

namespace qkscope {

struct StatsRunState {
  Statistics statistics;  // lengths and positions are set at the end, from the list of examples
  // Offsets by vector kind, stage and layer. A GPU subtracts them from the vectors before it
  // accumulates moments, for numerical stability. Empty until the first batch sets them.
  std::map<std::pair<VectorKind, VectorStage>, std::vector<std::vector<float>>> shifts;
};

// Writes the sums of a run to a file atomically, with a checksum.
void save_stats_state(const std::string& path, const StatsRunState& state);
// Reads a file written by save_stats_state(). Throws a bad-input error if the file is damaged.
StatsRunState load_stats_state(const std::string& path);

// Attention statistics of one document: over near keys (group B) and all keys (group C).
struct DocumentRecord {
  std::int64_t row = 0;  // dataset row
  DocumentAttention attention;
};
void save_document_records(const std::string& path, const std::vector<DocumentRecord>& documents);

// Reads a file written by save_document_records(), one document at a time. read_next_attention()
// opens and closes the file, because a merge keeps one reader per shard, and there can be more
// shards than files that a process may have open.
class DocumentRecordReader {
 public:
  // Throws a bad-input error if the file is damaged.
  explicit DocumentRecordReader(const std::string& path);

  bool at_end() const { return left_ == 0; }
  std::int64_t row_of_next_document() const { return row_; }  // dataset row of the next document
  DocumentAttention read_next_attention();

 private:
  std::string path_;
  std::size_t offset_ = 0;  // of the next document in the file
  std::uint64_t left_ = 0;
  std::int64_t row_ = 0;
};

// ---- Measures of attention that sums over rows do not determine

// Returns `count` evenly spaced rows of [0, length), always including the last row.
std::vector<std::int64_t> evenly_spaced_rows(std::int64_t length, std::int64_t count);

// Returns keys_90 ... keys_99 (number of keys that hold 90 % ... 99 % of the attention mass), then
// top_4 ... top_1024 (mass of the largest keys) for one row. pattern: shape (keys).
std::vector<double> measure_row_concentration(std::span<const float> pattern);

// Returns the mean of measure_row_concentration() over `count` rows of a document, one vector per
// head. Must be called after Backend::compute_attention().
std::vector<std::vector<double>> measure_attention_concentration(Backend& backend,
                                                                 const Sequence& sequence,
                                                                 std::int64_t longest,
                                                                 std::int64_t count);

// Computes the DuoAttention score of kvpress: repeats a head's mean query and mean key at 500
// positions, applies RoPE, and returns the area under the cumulative attention of the last query:
// 1 if all attention is on the first key, near 0 if the query attends to itself.
class DuoAttentionScorer {
 public:
  // Vectors are not rotated in a layer without RoPE.
  DuoAttentionScorer(const ModelConfig& model, std::int64_t layer, std::int64_t max_length);

  // query and key: mean vectors before RoPE, shape (d).
  double compute(std::span<const double> query, std::span<const double> key) const;

 private:
  static constexpr std::int64_t kPositions = 500;

  double scale_;
  std::int64_t rotary_ = 0;  // rotary dimensions
  std::int64_t begin_ = 0;   // first rotary dimension
  bool interleaved_;
  std::vector<double> cos_;  // (distances, rotary / 2), including the attention factor
  std::vector<double> sin_;
};

// ---- Forward passes that accumulate statistics

// Result of measure_attention_concentration() for one document and one layer.
struct AttentionConcentration {
  std::size_t document;      // index in the batch
  std::int64_t layer_index;  // in Statistics::layers
  std::vector<std::vector<double>> heads;
};

// Activation buffers of queries, keys and values, in the order of VectorKind.
inline constexpr std::array kVectorBuffers = {ActivationBuffer::q, ActivationBuffer::k,
                                              ActivationBuffer::v};

// Statistics of one batch, buffered until all earlier batches have been added to the state.
struct BatchStatistics {
  std::vector<std::pair<std::size_t, LayerMoments>> moments;          // with an index into moments_
  std::vector<std::pair<std::size_t, LayerAttentionSums>> attention;  // with a layer index
  std::vector<AttentionConcentration> exact;
};

class StatsPass : public LayerStatistics {
 public:
  // `plan` and `state` must outlive this object.
  StatsPass(const StatsRunPlan& plan, StatsRunState& state);
  ~StatsPass() override;

  // Runs a forward pass that fills `statistics`, on a backend or an ExternalEngineObserver.
  using PassRunner = std::function<void(const Batch& batch, LayerStatistics& statistics)>;

  // Runs a batch and adds it to the state. Returns the attention statistics of each document.
  std::vector<DocumentRecord> add_batch(const ExampleBatch& prepared, const PassRunner& run);

  // For a forward pass shared with a capture: call begin_batch() before it and finish_batch() after
  // it. `prepared` must stay valid until finish_batch() returns.
  void begin_batch(const ExampleBatch& prepared);
  std::vector<DocumentRecord> finish_batch();

  // The two halves of add_batch(), for several devices: each device has a StatsPass that computes
  // batches, and one StatsPass adds the results in batch order. compute_batch_statistics() changes
  // nothing in the state except missing shifts, which it sets.
  BatchStatistics compute_batch_statistics(const ExampleBatch& prepared, const PassRunner& run);
  std::vector<DocumentRecord> add_batch(const ExampleBatch& prepared, BatchStatistics held);
  // Whether batches may run concurrently: always on a CPU, on a GPU once all shifts are set.
  bool allows_concurrent_batches() const;

  bool accumulates_attention() const override { return plan_.accumulates_attention(); }
  void collect_before_rotation(Backend& backend, std::int64_t layer) override;
  void collect_after_rotation(Backend& backend, std::int64_t layer) override;
  void collect_after_attention(Backend& backend, std::int64_t layer) override;

 private:
  class MomentAccumulator;     // moments (group A) of one kind, stage and layer
  class AttentionAccumulator;  // attention statistics (groups B and C) of one layer

  void add_moments(VectorStage stage, std::int64_t layer);
  std::int64_t index_in_layers(std::int64_t layer) const;  // in Statistics::layers
  // Returns the number of query rows of a document in a position bucket.
  std::int64_t count_rows_in_bucket(std::int64_t length, std::int64_t bucket) const;
  // Returns the per-document values of one layer and head, shape (document columns).
  double* head_statistics(std::size_t document, std::int64_t layer_index, std::int64_t head);
  void add_cumulative_attention_areas(std::size_t document, std::int64_t layer_index);
  void store_attention_concentration(const AttentionConcentration& measured);

  const StatsRunPlan& plan_;
  StatsRunState& state_;
  Backend* backend_ = nullptr;  // runs the current batch
  const ExampleBatch* prepared_ = nullptr;
  BatchStatistics* buffered_ = nullptr;  // when set, statistics go here instead of the state
  std::vector<std::unique_ptr<MomentAccumulator>> moments_;
  std::vector<std::unique_ptr<AttentionAccumulator>> attention_;  // (layers)
  AttentionRequest attention_request_;
  std::vector<DuoAttentionScorer> areas_;  // (layers); empty if the settings do not ask for it
  // Mean queries and keys before RoPE of each document in the batch, for the current layer.
  std::vector<std::vector<double>> query_means_;  // (documents), each (heads, d)
  std::vector<std::vector<double>> key_means_;    // (documents), each (key heads, d)
  std::vector<DocumentRecord> documents_;         // of the batch
  std::vector<TokenPatternCounts> pairs_;         // (documents)
};

// Receives vectors from an external engine and computes their statistics on the CPU backend.
class ExternalEngineObserver : public Observer {
 public:
  explicit ExternalEngineObserver(const EngineModel& model);
  ~ExternalEngineObserver() override;

  // Runs a batch. Throws a bad-input error unless `run` passes q, k and v of each layer once.
  void run_batch(const Batch& batch, const RunPass& run, LayerStatistics& statistics);

  bool wants(HookPoint point) const override;
  void observe(HookPoint point, ConstTensorView activation) override;

 private:
  using QkvTensors = std::array<Tensor, 3>;  // q, k and v: (rows, heads, width)

  // Width of the engine's vectors of one kind (0: queries, 1: keys, 2: values).
  std::int64_t vector_width(std::size_t kind) const {
    return kind == 2 ? d_value_ : model_.config.d_head;
  }

  LoadedCheckpoint model_;  // without weights
  std::int64_t d_value_;
  std::unique_ptr<Backend> backend_;
  const Batch* batch_ = nullptr;
  LayerStatistics* statistics_ = nullptr;
  std::map<std::int64_t, QkvTensors> waiting_;  // layers that still lack q, k or v
  std::vector<bool> done_;                      // (layers)
};

}  // namespace qkscope
