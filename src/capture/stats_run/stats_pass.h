// Adds the documents of batches to the state of a run, by the backend's steps.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "capture/run/batch_reader.h"
#include "capture/stats_run/mean_area.h"
#include "capture/stats_run/run_state.h"
#include "capture/stats_run/stats_plan.h"
#include "engine/forward/forward.h"

namespace qkscope {

// What sorting gives of a document's chosen rows, in one layer.
struct ExactValues {
  std::size_t document;  // of the batch
  std::int64_t place;    // of the layer
  std::vector<std::vector<double>> heads;
};

// What a batch gives, before it is added to the state.
struct HeldStatistics {
  std::vector<std::pair<std::size_t, LayerMoments>> moments;      // by place in the pass
  std::vector<std::pair<std::size_t, LayerAttention>> attention;  // by place of the layer
  std::vector<ExactValues> exact;
};

class StatsPass : public LayerStatistics {
 public:
  // Both must outlive it.
  StatsPass(const StatsRunPlan& plan, StatsRunState& state);
  ~StatsPass() override;

  // Runs the documents of the batch. Returns what groups B and C give of each.
  std::vector<DocumentRecord> add(const PreparedBatch& prepared, Backend& backend);

  // The same around a pass that another one runs with these statistics: before it and after it.
  // The batch must stay until then.
  void begin(const PreparedBatch& prepared);
  std::vector<DocumentRecord> finish();

  // The same in two steps, the first by a pass of each device, the second by one pass for all. The
  // first leaves the state as it is, but for shifts that are not fixed yet.
  HeldStatistics compute(const PreparedBatch& prepared, Backend& backend);
  std::vector<DocumentRecord> add(const PreparedBatch& prepared, HeldStatistics held);
  // Whether no later batch fixes a shift: batches may be computed in any order.
  bool settled() const;

  bool wants_attention() const override { return plan_.adds_attention(); }
  void before_rotation(Backend& backend, std::int64_t layer) override;
  void after_rotation(Backend& backend, std::int64_t layer) override;
  void after_attention(Backend& backend, std::int64_t layer) override;

 private:
  class Moments;    // of one kind, stage and layer
  class Attention;  // of one layer

  // What the batch gives comes by what `fill` does.
  std::vector<DocumentRecord> add(const PreparedBatch& prepared, const std::function<void()>& fill);
  void run(const PreparedBatch& prepared, Backend& backend);
  void add_moments(VectorStage stage, std::int64_t layer);
  void begin_documents();
  std::int64_t place_of(std::int64_t layer) const;  // among those that run
  // A document's own values of a layer, by place of the layer and head.
  double* values_of(std::size_t document, std::int64_t place, std::int64_t head);
  void add_mean_areas(std::size_t document, std::int64_t place);
  void add_exact_rows(Backend& backend, std::int64_t place);
  void store(const ExactValues& rows);
  void count_rows();

  const StatsRunPlan& plan_;
  StatsRunState& state_;
  Backend* backend_ = nullptr;  // that runs the batch
  const PreparedBatch* prepared_ = nullptr;
  HeldStatistics* held_ = nullptr;  // what the batch gives goes there, not into the state
  std::vector<std::unique_ptr<Moments>> moments_;
  std::vector<std::unique_ptr<Attention>> attention_;  // by place of the layer
  AttentionRequest attention_request_;
  std::vector<MeanArea> areas_;  // by place of the layer; empty where they are not kept
  // Means before RoPE of the batch's documents, of the layer at hand.
  std::vector<std::vector<double>> query_means_;  // (documents), each (heads, d)
  std::vector<std::vector<double>> key_means_;    // (documents), each (key heads, d)
  std::vector<DocumentRecord> documents_;         // of the batch
  std::vector<TokenPairs> pairs_;                 // of those documents
};

}  // namespace qkscope
