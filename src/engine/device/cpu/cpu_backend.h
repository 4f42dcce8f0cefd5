// CPU backend: float32 activations, weights in their stored type.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "engine/device/backend.h"
#include "engine/device/memory_plan.h"
#include "engine/ops/attention.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/gemm.h"
#include "engine/ops/linear.h"
#include "engine/ops/mixer.h"
#include "engine/ops/packed_keys.h"
#include "qkscope/experimental/cpu.h"

namespace qkscope {

class CpuBackend : public Backend {
 public:
  using Backend::Backend;

  void begin_pass(const Batch& batch) override;
  std::unique_ptr<KvCacheMemory> make_kv_cache(std::int64_t sequences,
                                               std::int64_t positions) override;
  void use_kv_cache(KvCacheMemory& store) override;
  void embed_tokens() override;
  void embed_positions() override {
    qkscope::embed_positions(batch_->sequences, model().weights.positions, update_);
  }
  void embed_per_layer_inputs() override;
  void set_residual(ConstTensorView residual) override {
    residual_ = copy_tensor(residual);
    allocate_activations();
  }
  void begin_layer(std::int64_t layer) override;
  void save_layer_input() override { layer_input_ = copy_tensor(residual_); }
  void apply_norm(NormSite norm) override;
  void project_latents() override;
  void project_qkv(bool values) override;
  void apply_qk_norm() override;
  void apply_rope() override;
  void compute_attention() override;
  void project_output(ResidualAddMode addition) override {
    if (config().has_attention_gate())
      apply_gated_activation({Activation::sigmoid}, attention_gate_, z_, z_);
    apply_linear(as_matrix(z_), weights_->o, update_);
    normalize_or_add_update(0, active_rows(), weights_->post_attention_norm, addition);
  }
  void add_update_to_residual() override { add_in_place(residual_, update_); }
  void run_recurrent_mixer(std::span<const std::int64_t> state_rows) override;
  ConstTensorView mixer_states() override { return mixer_states_; }
  void project_mixer_output(ResidualAddMode addition) override {
    apply_linear(as_matrix(mixed_), weights_->mixer.output, update_);
    mixed_ = {};
    normalize_or_add_update(0, active_rows(), {}, addition);
  }
  void project_router() override {
    router_logits_ = Tensor({active_rows(), config().experts.count});
    apply_linear(normalized_, weights_->router, router_logits_);
  }
  void choose_experts() override {
    expert_weights_ = Tensor({active_rows(), config().experts.per_token});
    expert_indices_ = Tensor(expert_weights_.shape());
    qkscope::choose_experts(router_logits_, config().experts, weights_->selection_bias,
                            expert_weights_, expert_indices_);
  }
  std::int64_t mlp_chunk_rows() const override {
    return has_experts() ? cpu_expert_chunk_rows(config()) : kCpuMlpRows;
  }
  void project_gate_up(std::int64_t begin, std::int64_t count) override;
  void apply_mlp_activation(std::int64_t count) override;
  void project_down(std::int64_t begin, std::int64_t count, ResidualAddMode addition) override;
  void project_per_layer_input(ResidualAddMode addition) override;
  void scale_residual() override { scale_tensor(residual_, static_cast<double>(weights_->scalar)); }
  void project_logits() override;
  void drop_rows_except(std::span<const std::int64_t> rows) override;
  std::int64_t active_rows() const override { return residual_.dim(0); }
  void read_buffer(ActivationBuffer buffer, const Selection& selection,
                   HostTensorCallback show) override;
  void edit_buffer(ActivationBuffer buffer,
                   const std::function<void(TensorView)>& change) override {
    change(buffer_view(buffer));
  }
  ActivationCopy copy_buffer(ActivationBuffer buffer, const Selection& selection) override;
  void overwrite_buffer(ActivationBuffer buffer, const ActivationCopy& values) override {
    const auto whole = buffer_view(buffer);
    QKSCOPE_ASSERT(values.view.shape() == whole.shape());
    std::memcpy(whole.bytes(), values.view.bytes(), whole.size_bytes());
  }
  void compute_row_scores(const AttentionScores& out) override {
    qkscope::compute_row_scores(make_cached_attention_input(), out.rows, out.scores, out.pattern);
  }
  void recompute_attention_pattern(const AttentionScores& edited) override {
    qkscope::recompute_attention_pattern(make_cached_attention_input(), edited.rows, edited.scores,
                                         edited.pattern);
  }
  void recompute_edited_rows(const AttentionScores& edited) override {
    qkscope::recompute_edited_rows(make_cached_attention_input(), edited.rows, edited.scores,
                                   edited.pattern, z_);
  }
  void add_moments(ActivationBuffer buffer, const MomentRequest& request,
                   MomentConsumer& sink) override;
  void set_keep_softmax_sums(bool keep) override { keeps_row_sums_ = keep; }
  void add_attention_statistics(const AttentionRequest& request, AttentionConsumer& sink) override;
  void finish_pass() override;
  std::string describe_hardware() const override {
    return fmt::format("{}, {} {}", cpu_target(), thread_count(),
                       thread_count() == 1 ? "thread" : "threads");
  }
  void wait_until_idle() override {}
  std::string attention_kernel_name() const override {
    const auto tile = gemm::tile_shape();
    return fmt::format("tiles of {} x {}", tile.rows, tile.columns);
  }
  double measure_flop_rate(double seconds) override {
    return gemm::measure_peak_flop_rate(seconds);
  }

 private:
  static TensorView as_matrix(Tensor& heads) {
    return heads.view().reshaped({heads.dim(0), heads.dim(1) * heads.dim(2)});
  }
  void allocate_activations();
  void allocate_head_buffers(const LayerConfig& layer);
  const LayerConfig& layer_config() const { return config().layer(layer_); }
  AttentionInput make_attention_input() const;
  void append_to_cache();
  void project_qkv_from_latents(bool values);
  // Attention input whose k and v include the cached positions.
  AttentionInput make_cached_attention_input();
  void normalize_rows(ConstTensorView x, const NormWeights& norm, TensorView y) const {
    qkscope::apply_norm(config().norm, x, norm, config().norm_eps, y);
  }
  void normalize_or_add_update(std::int64_t begin, std::int64_t count, const NormWeights& post_norm,
                               ResidualAddMode addition);
  void project_mlp(ConstTensorView x, TensorView gate, TensorView up) const;
  void apply_mlp_activation(TensorView gate, ConstTensorView up) const;
  bool has_experts() const { return !weights_->experts.empty(); }
  // Adds the output of the shared expert for rows [begin, begin + count) to the residual update.
  void add_shared_expert(std::int64_t begin, std::int64_t count);
  TensorView mlp_chunk_view(Tensor& values) const;
  TensorView buffer_view(ActivationBuffer buffer);

  const Batch* batch_ = nullptr;
  std::int64_t layer_ = 0;
  const LayerWeights* weights_ = nullptr;
  std::vector<std::int64_t> kept_;  // rows of the batch that still run; empty: all

  Tensor residual_;          // (rows, d_model)
  Tensor layer_input_;       // (rows, d_model) for parallel residuals
  Tensor normalized_;        // (rows, d_model)
  Tensor update_;            // (rows, d_model)
  Tensor q_latent_;          // (rows, q_rank)
  Tensor kv_latent_;         // (rows, kv_rank)
  Tensor rotated_key_;       // (rows, rope dim), shared by all heads
  Tensor q_;                 // (rows, n_heads, d_head)
  Tensor k_;                 // (rows, n_kv_heads, d_head)
  Tensor v_;                 // (rows, n_kv_heads, d_value)
  Tensor z_;                 // (rows, n_heads, d_value)
  Tensor attention_gate_;    // (rows, n_heads, d_head) before the sigmoid
  Tensor per_layer_inputs_;  // (rows, n_layers, per_layer.width)
  Tensor mixed_;  // (rows, value_heads, d_value) output of run_recurrent_mixer(), until projected
  Tensor mixer_states_;          // MixerConfig::state_shape(state rows)
  Tensor router_logits_;         // (rows, experts)
  Tensor expert_weights_;        // (rows, k)
  Tensor expert_indices_;        // (rows, k)
  RowsByExpert by_expert_;       // rows of the current MLP chunk
  Tensor gate_;                  // see mlp_chunk_view
  Tensor up_;                    // see mlp_chunk_view
  Tensor logits_;                // (rows, vocab_size)
  std::int64_t chunk_rows_ = 0;  // rows of the current MLP chunk
  bool keeps_row_sums_ = false;
  std::vector<rows::RunningSoftmax> row_sums_;  // (rows, n_heads), if requested
  std::vector<RotaryTable> tables_;             // one per RoPE of the model, for the active rows
  std::vector<LayerKeyValueCache>* stored_ = nullptr;  // (n_layers) KV cache, or null
  std::vector<MixerState>* recurrent_ = nullptr;       // (n_layers) of the cache, or null
  std::vector<MixerState> recurrent_after_;            // (n_layers) states after this pass
  bool cache_appended_ = false;                        // this layer has been appended to stored_
  std::optional<LayerKeyValueCache::KeysAndValues> cached_rows_;      // unpacked, for scores
  std::map<std::int64_t, LayerKeyValueCache::KeysAndValues> shared_;  // by layer, for later ones
};

}  // namespace qkscope
