// Attention of a layer: choice of the keys and values (those of the batch, of a KV cache or of an
// earlier layer that shares them) and of the kernel.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/device/cuda/attention/attention.h"
#include "engine/device/cuda/cuda_devices.h"
#include "engine/device/cuda/memory/device_weights.h"
#include "engine/device/cuda/pass_context.h"

namespace qkscope::cuda {

// q, k and v of one layer on the host, for edited scores and statistics without a CUDA kernel.
struct HostQkv {
  Tensor q;  // (rows, n_heads, d_head)
  Tensor k;  // (rows, n_kv_heads, d_head)
  Tensor v;  // (rows, n_kv_heads, d_value)
};

class LayerAttention {
 public:
  LayerAttention(const PassContext& pass, int device)
      : pass_(pass),
        capability_(compute_capability(device)),
        hopper_(pass.model, pass.dtype, device, pass.stream),
        hopper_chunks_(pass.model, pass.dtype, device, pass.stream),
        cudnn_(hopper_.has_kernel() ? nullptr
                                    : std::make_unique<CudnnAttention>(pass.model, pass.dtype,
                                                                       device, pass.stream)) {}

  // Passes the sequences of the batch to FlashInfer or cuDNN; neither is used if a sequence has
  // cached positions. For chunked attention, every chunk counts as one sequence.
  void begin_pass(const Batch& batch) {
    batch_ = &batch;
    store_ = nullptr;
    continues_ = std::ranges::any_of(batch.sequences,
                                     [](const Sequence& sequence) { return sequence.past > 0; });
    if (continues_) return;
    if (!hopper_.has_kernel()) return cudnn_->set_sequences(batch.sequences);
    hopper_.set_sequences(batch.sequences);
    const auto& layers = pass_.model.layers;
    const auto chunked =
        std::ranges::find_if(layers, [](const auto& layer) { return layer.chunk > 0; });
    if (chunked == layers.end()) return;
    std::vector<Sequence> chunks;
    for (const auto& sequence : batch.sequences)
      for (std::int64_t begin = 0; begin < sequence.length; begin += chunked->chunk)
        chunks.push_back(
            {sequence.begin + begin, std::min(chunked->chunk, sequence.length - begin)});
    hopper_chunks_.set_sequences(chunks);
  }
  void use_kv_cache(CudaKvCacheMemory& store) {
    store_ = &store;
    stored_rows_.upload(store.cache_rows_to_write(batch_->sequences), "row numbers", pass_.stream);
    if (continues_) pass_.rows.set_first_key_rows(store.first_cache_rows(batch_->sequences));
  }
  CudaKvCacheMemory* kv_cache() const { return store_; }  // KV cache of the pass, or null
  void begin_layer(std::int64_t layer) {
    layer_ = layer;
    source_ = pass_.model.layer(layer).kv_source(layer);
    keys_kept_ = false;
  }

  // Returns true if the layer reuses the keys and values of an earlier layer, which
  // copy_shared_keys() copies to Activations::k() and v().
  bool uses_shared_keys() const { return source_ != layer_; }
  void copy_shared_keys() {
    pass_.copy_rows({.x = shared_.at(source_).data(),
                     .x_stride = a_.kv_width(),
                     .x_rows = pass_.rows.kept_rows(),
                     .y = a_.k(),
                     .y_stride = a_.qkv_width(),
                     .count = pass_.rows.count(),
                     .n = a_.kv_width()});
  }
  // Appends keys and values to the KV cache, and keeps a copy for later layers that share them.
  void store_keys_and_values() {
    if (std::exchange(keys_kept_, true) || uses_shared_keys()) return;
    const auto copy = [&](void* to, const std::int32_t* rows) {
      pass_.copy_rows({.x = a_.k(),
                       .x_stride = a_.qkv_width(),
                       .y = to,
                       .y_stride = a_.kv_width(),
                       .y_rows = rows,
                       .count = batch_->rows(),
                       .n = a_.kv_width()});
    };
    if (store_ != nullptr) copy(store_->view(layer_, true).data, stored_rows_.as<std::int32_t>());
    if (std::ranges::count(pass_.model.layers, layer_, &LayerConfig::kv_layer) > 0)
      copy(pass_.reserve_elements(shared_[layer_], batch_->rows() * a_.kv_width(), "shared keys"),
           nullptr);
  }

  // Returns the queries of the active rows and the keys that they attend to. `sinks`: (n_heads) on
  // the GPU, or null.
  QueriesAndKeys queries_and_keys(const float* sinks) const {
    return {.q = a_.queries(),
            .k = continues_ ? store_->view(source_, true).data : a_.k(),
            .row_stride = a_.query_stride(),
            .k_stride = continues_ ? a_.kv_width() : a_.qkv_width(),
            .n_heads = pass_.model.n_heads,
            .n_kv_heads = a_.n_kv_heads(),
            .d_head = a_.d_head(),
            .scale = static_cast<float>(pass_.model.score_scale(layer_)),
            .softcap = static_cast<float>(pass_.model.attention_softcap),
            .window = a_.layer_config().window,
            .chunk = a_.layer_config().chunk,
            .dtype = pass_.dtype,
            .sinks = sinks};
  }

  HostQkv fetch_qkv() {
    return {pass_.copies.fetch_activation(a_.view(ActivationBuffer::q, pass_.rows.count())),
            fetch_keys_or_values(true), fetch_keys_or_values(false)};
  }
  // Returns the inputs of CPU attention. `sinks`: (n_heads) on the host, or empty.
  AttentionInput host_attention_input(const HostQkv& heads, std::span<const float> sinks) const {
    const auto source = queries_and_keys(nullptr);
    return {.q = heads.q,
            .k = heads.k,
            .v = heads.v,
            .sequences = batch_->sequences,
            .scale = source.scale,
            .window = source.window,
            .chunk = source.chunk,
            .softcap = source.softcap,
            .sinks = sinks};
  }

  // Computes z of the active rows and returns the kernel used; cuDNN does not write `row_stats`.
  AttentionKernel attend(const QueriesAndKeys& source, const SoftmaxRowStats& row_stats) {
    store_keys_and_values();
    AttentionArguments arguments{source};
    arguments.v = continues_ ? store_->view(source_, false).data : a_.v();
    arguments.z = a_.z();
    arguments.v_stride = source.k_stride;
    arguments.z_stride = a_.z_width();
    arguments.queries = pass_.rows.count();
    arguments.d_value = a_.d_value();
    arguments.row_stats = row_stats;
    // FlashInfer and cuDNN are set up for the model's head size and counts, not for a layer's.
    const auto& layer = a_.layer_config();
    const bool has_usual_heads = layer.d_head == 0 && layer.n_kv_heads == 0;
    const auto kernel = choose_attention_kernel(
        {.capability = capability_,
         .dtype = pass_.dtype,
         .d_head = source.d_head,
         .d_value = arguments.d_value,
         .softcap = source.softcap > 0.0f,
         .sinks = pass_.model.has_sinks(),
         .own_scale = layer.score_scale != 1.0,
         .chosen_rows = pass_.rows.has_dropped_rows() || continues_,
         .chunks = source.chunk > 0},
        {.flash_infer = hopper_.has_kernel() && has_usual_heads, .cudnn = has_usual_heads});
    if (kernel == AttentionKernel::flash_infer) {
      (source.chunk > 0 ? hopper_chunks_ : hopper_).attend(arguments);
      kernel_name_ = "FlashInfer (Hopper)";
      return kernel;
    }
    if (kernel == AttentionKernel::cudnn && cudnn_->try_attend(arguments)) {
      kernel_name_ = "cuDNN";
      return kernel;
    }
    const auto keys = pass_.rows.visible_keys(source.window, source.chunk);
    arguments.first_key = keys.first;
    arguments.last_key = keys.last;
    arguments.sequence_begin = keys.begin;
    compute_attention(arguments, pass_.stream);
    kernel_name_ = pass_.dtype == DType::f32 ? "our own" : "our own (mma.sync)";
    return AttentionKernel::own;
  }
  const char* kernel_name() const { return kernel_name_; }  // of the last layer

 private:
  // Copies the keys or values of all positions to the host, one sequence after another.
  Tensor fetch_keys_or_values(bool keys) {
    const auto view = a_.view(keys ? ActivationBuffer::k : ActivationBuffer::v, batch_->rows());
    if (!continues_) return pass_.copies.fetch_activation(view);
    std::int64_t positions = 0;
    for (const auto& sequence : batch_->sequences) positions += sequence.end();
    Tensor all({positions, view.heads, view.width});
    auto* to = all.view().bytes();
    for (const auto& sequence : batch_->sequences) {
      const auto part =
          pass_.copies.fetch_activation(store_->sequence_view(source_, keys, sequence));
      std::memcpy(to, part.view().bytes(), part.view().size_bytes());
      to += part.view().size_bytes();
    }
    return all;
  }

  const PassContext& pass_;
  const Activations& a_ = pass_.activations;
  int capability_;  // 90: compute capability 9.0
  HopperAttention hopper_;
  HopperAttention hopper_chunks_;          // of layers with chunked attention
  std::unique_ptr<CudnnAttention> cudnn_;  // used where hopper_ has no kernel
  const char* kernel_name_ = "none";

  const Batch* batch_ = nullptr;
  CudaKvCacheMemory* store_ = nullptr;
  bool continues_ = false;    // some sequence continues a cached one
  UploadBuffer stored_rows_;  // (rows of the batch) KV cache rows to write
  std::int64_t layer_ = 0;
  std::int64_t source_ = 0;  // layer whose keys and values are used
  bool keys_kept_ = false;
  std::map<std::int64_t, DeviceMemory> shared_;  // (rows, kv_width) by layer
};

// Computes q, k and v from the normalised layer input: direct or latent projections, norms, RoPE.
class QkvProjection {
 public:
  QkvProjection(const PassContext& pass, LayerAttention& attention)
      : pass_(pass), attention_(attention) {}

  void begin_pass() { norm_pending_ = rotation_pending_ = false; }
  void begin_layer(const DeviceLayer& layer) { layer_ = &layer; }

  // Latent attention: computes the normalised latents and the rotated part of the keys.
  void project_latents() {
    const auto& weights = layer_->latent;
    const auto project = [&](const DeviceLinear& linear, DeviceMemory& memory) {
      void* const y = pass_.reserve_elements(memory, pass_.rows.count() * linear.out, "latents");
      pass_.apply_linear(a_.normalized(), linear, y);
      return y;
    };
    const auto normalize = [&](void* x, const DeviceNorm& norm, std::int64_t width) {
      pass_.normalize_rows({.x = x, .norm = norm, .y = x, .n = width}, model_.latent.norm_eps);
    };
    normalize(project(weights.kv, kv_latent_), weights.kv_norm, weights.kv.out);
    project(weights.rotated_key, rotated_key_);
    if (weights.q.out == 0) return;
    normalize(project(weights.q, q_latent_), weights.q_norm, weights.q.out);
  }
  ActivationView kv_latent() const {  // (rows, kv_rank)
    const auto width = model_.latent.kv_rank;
    return {kv_latent_.data(), width, pass_.rows.count(), 1, width, false, pass_.dtype};
  }

  void project_qkv(bool values) {
    a_.discard_kept_queries();
    if (model_.has_latent_attention()) return project_qkv_from_latents(values);
    values = values || model_.v_norm;  // apply_qk_norm() reads v
    const auto stride = a_.qkv_width();
    auto qkv = layer_->qkv;
    if (!values) qkv.out = std::min(qkv.out, stride - a_.v_width());
    pass_.apply_linear(a_.normalized(), qkv, a_.qkv(), stride);
    if (attention_.uses_shared_keys())
      attention_.copy_shared_keys();
    else if (values && qkv.out < stride)  // W_V is W_K
      pass_.copy_rows({.x = a_.k(),
                       .x_stride = stride,
                       .y = a_.v(),
                       .y_stride = stride,
                       .count = pass_.rows.count(),
                       .n = a_.k_width()});
    if (values && model_.has_attention_gate())
      pass_.apply_linear(a_.normalized(), layer_->attention_gate, a_.attention_gate());
    if (model_.qkv_clip > 0.0)
      clip(a_.qkv(), pass_.rows.count() * stride, static_cast<float>(model_.qkv_clip), pass_.dtype,
           pass_.stream);
  }

  // Defers norm and rotation until q and k are observed or attention needs them, so that both run
  // in one fused kernel. A norm over the concatenation of all heads uses a separate kernel.
  void apply_qk_norm() {
    if (model_.v_norm && !attention_.uses_shared_keys())  // passed as unrotated queries
      normalize_and_rotate_heads({.q = a_.v(),
                                  .n_heads = a_.n_kv_heads(),
                                  .d_head = a_.d_value(),
                                  .q_norm = layer_->v_norm.weight,
                                  .rotary = {}});
    norm_pending_ = !model_.qk_norm_whole;
    if (norm_pending_) return;
    const auto normalize_whole = [&](void* x, const DeviceNorm& norm, std::int64_t width) {
      pass_.normalize_rows({.x = x, .norm = norm, .y = x, .n = width, .row_stride = a_.qkv_width()},
                           model_.norm_eps);
    };
    normalize_whole(a_.qkv(), layer_->q_norm, a_.q_width());
    normalize_whole(a_.k(), layer_->k_norm, a_.k_width());
  }
  void apply_rope() { rotation_pending_ = true; }

  void apply_pending_norm_and_rope() {
    const auto rope = a_.layer_config().rope;
    const auto& scaling = model_.query_scaling;
    const bool rotates = rotation_pending_ && rope >= 0;
    const bool scales =
        rotation_pending_ && scaling.has_value() && !(scaling->without_rope && rotates);
    const bool norm_last = rotates && model_.rotated_qk_norm;
    const bool norms = norm_pending_ || norm_last;
    if (norms || rotates || scales)
      normalize_and_rotate_heads({.q = a_.qkv(),
                                  .k = a_.k(),
                                  .n_heads = model_.n_heads,
                                  .n_kv_heads = attention_.uses_shared_keys() ? 0 : a_.n_kv_heads(),
                                  .d_head = a_.d_head(),
                                  .q_norm = norms ? layer_->q_norm.weight : nullptr,
                                  .k_norm = norms ? layer_->k_norm.weight : nullptr,
                                  .rotary = pass_.rows.rotary_table(rope),
                                  .rotate = rotates,
                                  .norm_last = norm_last,
                                  .interleaved = model_.rope_interleaved,
                                  .sorts_pairs = model_.rope_sorts_pairs,
                                  .query_scale = scales ? pass_.rows.query_scale() : nullptr});
    norm_pending_ = rotation_pending_ = false;
  }

 private:
  // Projects latents to q, k and v. The unrotated key parts reuse the buffer of normalised rows.
  void project_qkv_from_latents(bool values) {
    const auto stride = a_.qkv_width();
    const auto shared = layer_->latent.rotated_key.out;
    void* const own = a_.normalized();
    pass_.apply_linear(model_.latent.q_rank > 0 ? q_latent_.data() : own, layer_->qkv, a_.qkv(),
                       stride);
    pass_.apply_linear(kv_latent_.data(), layer_->latent.k, own);
    if (values) pass_.apply_linear(kv_latent_.data(), layer_->latent.v, a_.v(), stride);
    concatenate_latent_keys({.own = own,
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

  void normalize_and_rotate_heads(NormalizeAndRotateArguments a) {
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
