// Adds the documents of batches to the state of a run, by the backend's steps.
#pragma once

#include <memory>
#include <vector>

#include "capture/batch_reader.h"
#include "collect/mean_area.h"
#include "collect/run_state.h"
#include "collect/stats_plan.h"
#include "forward/forward.h"

namespace qkscope {

class StatsPass : public LayerStatistics {
 public:
  // All three must outlive it.
  StatsPass(const StatsRunPlan& plan, Backend& backend, RunState& state);
  ~StatsPass() override;

  // Runs the documents of the batch. Returns what groups B and C give of each.
  std::vector<DocumentRecord> add(const PreparedBatch& prepared);
  // The same around a pass that another one runs with these statistics: before it and after it.
  // The batch must stay until then.
  void begin(const PreparedBatch& prepared);
  std::vector<DocumentRecord> finish();

  bool wants_attention() const override { return plan_.adds_attention(); }
  void before_rotation(Backend& backend, std::int64_t layer) override;
  void after_rotation(Backend& backend, std::int64_t layer) override;
  void after_attention(Backend& backend, std::int64_t layer) override;

 private:
  class Moments;    // of one kind, stage and layer
  class Attention;  // of one layer

  void add_moments(VectorStage stage, std::int64_t layer);
  void begin_documents();
  std::int64_t place_of(std::int64_t layer) const;  // among those that run
  // A document's own values of a layer, by place of the layer and head.
  double* values_of(std::size_t document, std::int64_t place, std::int64_t head);
  void add_mean_areas(std::size_t document, std::int64_t place);
  void add_exact_rows(Backend& backend, std::int64_t place);
  void count_rows();

  const StatsRunPlan& plan_;
  Backend& backend_;
  RunState& state_;
  const PreparedBatch* prepared_ = nullptr;
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
