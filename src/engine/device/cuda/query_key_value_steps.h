// Steps from the normalised input of a layer to q, k and v: projections, also through the latents
// of latent attention (MLA), norms and rotation.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/device/cuda/attention/layer_attention.h"
#include "engine/device/cuda/memory/device_weights.h"
#include "engine/device/cuda/pass_context.h"

namespace qkscope::cuda {

class QueryKeyValueSteps {
 public:
  QueryKeyValueSteps(const PassContext& pass, LayerAttention& attention)
      : pass_(pass), attention_(attention) {}

  void begin_pass() { norm_pending_ = rotation_pending_ = false; }
  void begin_layer(const DeviceLayer& layer) { layer_ = &layer; }

  // Latent attention: computes the normalised latents and the rotated part of the keys.
  void project_latents() {
    const auto& weights = layer_->latent;
    const auto project = [&](const DeviceLinear& linear, DeviceMemory& memory) {
      void* const y = pass_.reserve(memory, pass_.rows.count() * linear.out, "latents");
      pass_.multiply(a_.normalized(), linear, y);
      return y;
    };
    const auto normalize = [&](void* x, const DeviceNorm& norm, std::int64_t width) {
      pass_.normalize({.x = x, .norm = norm, .y = x, .n = width}, model_.latent.norm_eps);
    };
    normalize(project(weights.kv, kv_latent_), weights.kv_norm, weights.kv.out);
    project(weights.rotated_key, rotated_key_);
    if (weights.q.out == 0) return;
    normalize(project(weights.q, q_latent_), weights.q_norm, weights.q.out);
  }
  DeviceView kv_latent() const {  // (rows, kv_rank)
    const auto width = model_.latent.kv_rank;
    return {kv_latent_.data(), width, pass_.rows.count(), 1, width, false, pass_.dtype};
  }

  void project_qkv(bool values) {
    a_.read_queries_from_qkv();
    if (model_.has_latent_attention()) return project_from_latents(values);
    values = values || model_.v_norm;  // normalize_heads() reads v
    const auto stride = a_.qkv_width();
    auto qkv = layer_->qkv;
    if (!values) qkv.out = std::min(qkv.out, stride - a_.v_width());
    pass_.multiply(a_.normalized(), qkv, a_.qkv(), stride);
    if (attention_.uses_shared_keys())
      attention_.copy_shared_keys();
    else if (values && qkv.out < stride)  // W_V is W_K
      pass_.copy({.x = a_.k(),
                  .x_stride = stride,
                  .y = a_.v(),
                  .y_stride = stride,
                  .count = pass_.rows.count(),
                  .n = a_.k_width()});
    if (values && model_.has_attention_gate())
      pass_.multiply(a_.normalized(), layer_->attention_gate, a_.attention_gate());
    if (model_.qkv_clip > 0.0)
      clip(a_.qkv(), pass_.rows.count() * stride, static_cast<float>(model_.qkv_clip), pass_.dtype,
           pass_.stream);
  }

  // Defers norm and rotation until q and k are observed or attention needs them, so that both run
  // in one fused kernel. A norm over the concatenation of all heads uses a separate kernel.
  void normalize_heads() {
    if (model_.v_norm && !attention_.uses_shared_keys())  // as queries that are not rotated
      run_heads_kernel({.q = a_.v(),
                        .n_heads = a_.n_kv_heads(),
                        .d_head = a_.d_value(),
                        .q_norm = layer_->v_norm.weight,
                        .rotary = {}});
    norm_pending_ = !model_.qk_norm_whole;
    if (norm_pending_) return;
    const auto normalize_whole = [&](void* x, const DeviceNorm& norm, std::int64_t width) {
      pass_.normalize({.x = x, .norm = norm, .y = x, .n = width, .row_stride = a_.qkv_width()},
                      model_.norm_eps);
    };
    normalize_whole(a_.qkv(), layer_->q_norm, a_.q_width());
    normalize_whole(a_.k(), layer_->k_norm, a_.k_width());
  }
  void apply_rope() { rotation_pending_ = true; }

  void apply_pending() {
    const auto rope = a_.layer().rope;
    const auto& scaling = model_.query_scaling;
    const bool rotates = rotation_pending_ && rope >= 0;
    const bool scales =
        rotation_pending_ && scaling.has_value() && !(scaling->without_rope && rotates);
    const bool norm_last = rotates && model_.rotated_qk_norm;
    const bool norms = norm_pending_ || norm_last;
    if (norms || rotates || scales)
      run_heads_kernel({.q = a_.qkv(),
                        .k = a_.k(),
                        .n_heads = model_.n_heads,
                        .n_kv_heads = attention_.uses_shared_keys() ? 0 : a_.n_kv_heads(),
                        .d_head = a_.d_head(),
                        .q_norm = norms ? layer_->q_norm.weight : nullptr,
                        .k_norm = norms ? layer_->k_norm.weight : nullptr,
                        .rotary = pass_.rows.rotary(rope),
                        .rotate = rotates,
                        .norm_last = norm_last,
                        .interleaved = model_.rope_interleaved,
                        .sorts_pairs = model_.rope_sorts_pairs,
                        .query_scale = scales ? pass_.rows.query_scale() : nullptr});
    norm_pending_ = rotation_pending_ = false;
  }

 private:
  // The part of the keys that is not rotated overwrites the normalised rows.
  void project_from_latents(bool values) {
    const auto stride = a_.qkv_width();
    const auto shared = layer_->latent.rotated_key.out;
    void* const own = a_.normalized();
    pass_.multiply(model_.latent.q_rank > 0 ? q_latent_.data() : own, layer_->qkv, a_.qkv(),
                   stride);
    pass_.multiply(kv_latent_.data(), layer_->latent.k, own);
    if (values) pass_.multiply(kv_latent_.data(), layer_->latent.v, a_.v(), stride);
    join_latent_keys({.own = own,
                      .shared = rotated_key_.data(),
                      .k = a_.k(),
                      .k_stride = stride,
                      .rows = pass_.rows.count(),
                      .heads = model_.n_heads,
                      .own_width = model_.d_head - shared,
                      .shared_width = shared,
                      .dtype = pass_.dtype},
                     pass_.stream);
  }

  void run_heads_kernel(NormalizeAndRotateArguments a) {
    a.row_stride = a_.qkv_width();
    a.rows = pass_.rows.count();
    a.eps = static_cast<float>(model_.norm_eps);
    a.dtype = pass_.dtype;
    normalize_and_rotate(a, pass_.stream);
  }

  const PassContext& pass_;
  LayerAttention& attention_;
  const ModelConfig& model_ = pass_.model;
  Activations& a_ = pass_.activations;
  const DeviceLayer* layer_ = nullptr;
  bool norm_pending_ = false;
  bool rotation_pending_ = false;
  DeviceMemory kv_latent_;    // (rows, kv_rank)
  DeviceMemory q_latent_;     // (rows, q_rank)
  DeviceMemory rotated_key_;  // (rows, rotated dimensions), shared by all heads
};

}  // namespace qkscope::cuda
