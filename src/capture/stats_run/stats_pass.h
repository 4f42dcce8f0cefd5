// Accumulates statistics during the forward passes of batches.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "capture/run/batch_reader.h"
#include "capture/stats_run/attention_measures.h"
#include "capture/stats_run/run_state.h"
#include "capture/stats_run/stats_plan.h"
#include "engine/forward/forward.h"

namespace qkscope {

// Exact key counts of one document in one layer, from measure_attention_concentration().
struct ExactKeyCounts {
  std::size_t document;      // index in the batch
  std::int64_t layer_index;  // in Statistics::layers
  std::vector<std::vector<double>> heads;
};

// Statistics of one batch, buffered until all earlier batches have been added to the state.
struct BatchStatistics {
  std::vector<std::pair<std::size_t, LayerMoments>> moments;          // with an index into moments_
  std::vector<std::pair<std::size_t, LayerAttentionSums>> attention;  // with a layer index
  std::vector<ExactKeyCounts> exact;
};

class StatsPass : public LayerStatistics {
 public:
  // `plan` and `state` must outlive this object.
  StatsPass(const StatsRunPlan& plan, StatsRunState& state);
  ~StatsPass() override;

  // Runs the forward pass of a batch with statistics, on a backend or an ExternalEngineObserver.
  using RunWithStatistics = std::function<void(const Batch& batch, LayerStatistics& statistics)>;

  // Runs a batch and adds it to the state. Returns the attention statistics of each document, for
  // near keys and for all keys.
  std::vector<DocumentRecord> add_batch(const PreparedBatch& prepared,
                                        const RunWithStatistics& run);

  // Called before and after a forward pass that a capture shares with these statistics. The batch
  // must outlive finish_batch().
  void begin_batch(const PreparedBatch& prepared);
  std::vector<DocumentRecord> finish_batch();

  // The two halves of add_batch(), for several devices: each device has a StatsPass that computes
  // batches, and one StatsPass adds the results in batch order. compute_batch() only changes the
  // state to set missing shifts.
  BatchStatistics compute_batch(const PreparedBatch& prepared, const RunWithStatistics& run);
  std::vector<DocumentRecord> add_batch(const PreparedBatch& prepared, BatchStatistics held);
  // Whether the shift vectors of all moments are set; batches may then be computed concurrently.
  bool has_fixed_shifts() const;

  bool wants_attention() const override { return plan_.accumulates_attention(); }
  void before_rotation(Backend& backend, std::int64_t layer) override;
  void after_rotation(Backend& backend, std::int64_t layer) override;
  void after_attention(Backend& backend, std::int64_t layer) override;

 private:
  class Moments;    // group A of one kind, stage and layer
  class Attention;  // groups B and C of one layer

  void add_moments(VectorStage stage, std::int64_t layer);
  void make_document_records();
  std::int64_t layer_index(std::int64_t layer) const;  // in Statistics::layers
  // Returns the number of query rows of a document in a position bucket.
  std::int64_t count_rows_in_bucket(std::int64_t length, std::int64_t bucket) const;
  // Returns the per-document values of one layer and head, shape (document columns).
  double* document_statistics(std::size_t document, std::int64_t layer_index, std::int64_t head);
  void add_mean_attention_areas(std::size_t document, std::int64_t layer_index);
  void add_exact_key_counts(Backend& backend, std::int64_t layer_index);
  void store_exact_key_counts(const ExactKeyCounts& rows);
  void count_documents_and_rows();

  const StatsRunPlan& plan_;
  StatsRunState& state_;
  Backend* backend_ = nullptr;  // runs the current batch
  const PreparedBatch* prepared_ = nullptr;
  BatchStatistics* buffered_ = nullptr;  // when set, statistics go here instead of the state
  std::vector<std::unique_ptr<Moments>> moments_;
  std::vector<std::unique_ptr<Attention>> attention_;  // (layers)
  AttentionRequest attention_request_;
  std::vector<MeanQkArea> areas_;  // (layers); empty if the settings do not ask for it
  // Mean queries and keys before RoPE of each document in the batch, for the current layer.
  std::vector<std::vector<double>> query_means_;  // (documents), each (heads, d)
  std::vector<std::vector<double>> key_means_;    // (documents), each (key heads, d)
  std::vector<DocumentRecord> documents_;         // of the batch
  std::vector<PatternPairCounts> pairs_;          // (documents)
};

}  // namespace qkscope
