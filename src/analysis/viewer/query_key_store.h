// Queries and keys of one text from a forward pass, kept in host memory for all layers, or
// recomputed layer by layer if they do not fit.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analysis/viewer/recent_cache.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Plan of what stays in host memory, made before the forward pass.
struct QueryKeyPlan {
  DType dtype = DType::f32;         // type of the stored q and k: the type the pass computes in
  std::int64_t layers = 0;          // layers with attention over the text
  std::int64_t kept_layers = 0;     // layers whose q and k are in memory at a time
  std::int64_t snapshot_step = 0;   // layers between snapshots of the residual stream;
                                    // 0: no snapshots, because q and k of all layers are kept
  std::int64_t layer_bytes = 0;     // q and k of one layer
  std::int64_t residual_bytes = 0;  // residual stream before one layer
  std::int64_t pass_bytes = 0;      // host activations of the pass

  bool recomputes() const { return snapshot_step > 0; }
  std::int64_t snapshots() const;  // kept residual streams
  std::int64_t bytes() const;      // host memory of the run, activations of the pass included
};

// Chooses what to keep in `memory` bytes: all layers, or two layers and as many residual snapshots
// as fit. Throws a bad-input error if two layers and one snapshot do not fit.
QueryKeyPlan plan_query_keys(const ModelConfig& config, Device device, DType dtype,
                             std::int64_t rows, std::int64_t memory);

// Returns a sentence for the user: what is kept, how much memory it takes, what is recomputed.
std::string describe_plan(const QueryKeyPlan& plan);

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

// Not thread-safe: the caller must hold the lock of the compute queue.
class QueryKeyStore {
 public:
  // Runs the forward pass, then releases `model` unless the plan recomputes layers.
  QueryKeyStore(std::shared_ptr<const Model> model, std::span<const std::int32_t> ids,
                const QueryKeyPlan& plan, bool quiet);

  const ModelConfig& config() const { return config_; }
  std::int64_t rows() const { return batch_.rows(); }
  const QueryKeyPlan& plan() const { return plan_; }
  bool has_layer(std::int64_t layer) const;
  std::span<const float> sinks(std::int64_t layer) const {  // (n_heads) or empty
    return sinks_[static_cast<std::size_t>(layer)];
  }
  // Recomputes the layer if it is not in memory.
  HeadVectors head(std::int64_t layer, std::int64_t head);

 private:
  class LayerRecorder;

  std::shared_ptr<const LayerVectors> layer(std::int64_t layer);
  void run(Observer& observer, std::int64_t first_layer) const;

  std::shared_ptr<const Model> model_;
  ModelConfig config_;
  Batch batch_;
  QueryKeyPlan plan_;
  std::vector<std::vector<float>> sinks_;     // (n_layers) of (n_heads) or empty
  std::map<std::int64_t, Tensor> snapshots_;  // (rows, d_model) by layer
  RecentCache<std::int64_t, std::shared_ptr<const LayerVectors>> layers_;
  // Cache of q and k (rows, d_head) converted from 16 bits to float32, by (layer, head).
  RecentCache<std::pair<std::int64_t, std::int64_t>, std::shared_ptr<const LayerVectors>> widened_;
};

}  // namespace qkscope
