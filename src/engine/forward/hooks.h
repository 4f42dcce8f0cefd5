// Hook points of a model, and the plan of which part of the network has to run for an observer.
#pragma once

#include <cstdint>
#include <vector>

#include "qkscope/forward.h"

namespace qkscope {

// Returns all hook points of a model in firing order, including derived ones.
std::vector<HookPoint> all_hook_points(const ModelConfig& model);

// Returns true if the model has the stage in this layer.
bool has_hook_point(const ModelConfig& model, HookPoint point);

// Decides where a pass ends, and from which layer on it computes only a subset of the rows.
class PassPlan {
 public:
  // Start of a pass: the first layer that runs, and whether the embedding runs. Hook points before
  // the start do not fire.
  struct PassStart {
    std::int64_t layer = 0;
    bool embeds = true;
  };

  // Throws a bad-input error if the observer selects rows or heads that do not exist.
  PassPlan(const ModelConfig& model, const Observer& observer, std::int64_t rows, PassStart start);
  PassPlan(const ModelConfig& model, const Observer& observer, std::int64_t rows)
      : PassPlan(model, observer, rows, PassStart()) {}
  // Plan for statistics over all rows: runs at least up to the given stage of the last layer.
  PassPlan(const ModelConfig& model, const Observer& observer, std::int64_t rows, Stage statistics);

  // Makes every layer compute attention for all rows, to fill a KV cache.
  void compute_all_keys_for_cache(const ModelConfig& model);

  bool empty() const { return wanted_.empty(); }
  // Returns true if no activation at or after this hook point is requested: the pass may stop.
  bool ends_before(HookPoint point) const;

  // Returns true if all rows except last_rows() are dropped at this layer, before its attention
  // output is computed. Layer start - 1 means before the first layer, n_layers before the final
  // norm.
  bool drops_rows_in(std::int64_t layer) const {
    return !last_rows_.empty() && layer == drop_layer_;
  }
  const std::vector<std::int64_t>& last_rows() const { return last_rows_; }

 private:
  std::int64_t layer_index(
      HookPoint point) const;  // layer number; -1 for the embedding, n_layers after the layers
  std::int64_t last_attention_layer(const ModelConfig& model) const;
  // Tries to drop rows at a layer; returns false if all rows are needed after its attention.
  bool try_drop_rows_in(std::int64_t layer, const Observer& observer, std::int64_t rows);

  std::int64_t n_layers_;
  std::vector<HookPoint> wanted_;  // in firing order; the last one ends the pass
  std::int64_t drop_layer_ = -1;
  std::vector<std::int64_t> last_rows_;  // ascending; empty: no row is dropped
};

}  // namespace qkscope
