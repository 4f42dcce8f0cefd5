#include "engine/forward/forward.h"

#include <numeric>

#include "base/core/error.h"
#include "base/core/numbers.h"

namespace qkscope {
namespace {

class ForwardPass {
 public:
  ForwardPass(Backend& backend, const Batch& batch, Observer& observer, PassPlan plan)
      : backend_(backend),
        config_(backend.config()),
        batch_(batch),
        observer_(observer),
        plan_(std::move(plan)) {}

  void set_run_options(const RunOptions& options) { options_ = options; }
  void use_statistics(LayerStatistics& statistics) { statistics_ = &statistics; }
  void use_kv_cache(KvCacheMemory& store) { store_ = &store; }
  void use_timer(StepTimer& timer) { timer_ = &timer; }

  void run() {
    for (const auto& sequence : batch_.sequences)
      if (store_ == nullptr && sequence.past > 0)
        reject("a sequence goes on at position {}: that needs the cache that add_to() is of",
               sequence.past);
    if (store_ != nullptr) reject_shared_key_edits();
    if (plan_.empty()) return;
    backend_.begin_pass(batch_);
    timer_->end_named_step("start and end");
    if (store_ != nullptr) backend_.use_kv_cache(*store_);
    backend_.set_keep_softmax_sums(needs_attention_statistics());
    if (options_.residual.empty())
      embed_tokens();
    else
      backend_.set_residual(options_.residual);
    drop_unneeded_rows(options_.start_at_layer - 1);
    run_layers();
    unembed();
    backend_.finish_pass();
    timer_->end_named_step("start and end");
  }

 private:
  // Layers that share keys have one copy in the KV cache; only hooks of the first may edit it.
  void reject_shared_key_edits() const {
    for (std::int64_t layer = 0; layer < config_.n_layers; ++layer)
      if (const auto source = config_.layer(layer).kv_layer;
          source >= 0 && is_edited({Stage::rot_k, layer}))
        reject("observer: {} holds the cached keys of layer {}; edit {}",
               hook_name({Stage::rot_k, layer}), source, hook_name({Stage::rot_k, source}));
  }

  void embed_tokens() {
    backend_.embed_tokens();
    show_to_observer({Stage::embed}, ActivationBuffer::residual);
    if (config_.per_layer.width > 0) {
      backend_.embed_per_layer_inputs();
      timer_->end_step({Stage::per_layer_out});
    }
    if (!config_.learned_positions()) return;
    backend_.embed_positions();
    show_to_observer({Stage::pos_embed}, ActivationBuffer::update);
    backend_.add_update_to_residual();
    timer_->end_named_step("output");
  }

  void run_layers() {
    for (std::int64_t layer = options_.start_at_layer; layer < config_.n_layers; ++layer) {
      if (plan_.ends_before({Stage::resid_pre, layer})) return;
      if (config_.layers[as_index(layer)].cross_attention) continue;
      observer_.begin_layer(layer);
      backend_.begin_layer(layer);
      run_layer(layer);
    }
  }

  void run_layer(std::int64_t layer) {
    const auto& config = config_.layers[as_index(layer)];
    show_to_observer({Stage::resid_pre, layer}, ActivationBuffer::residual);
    show_head_inputs(layer);
    if (config_.parallel_residual) backend_.save_layer_input();

    if (config.mixer == Mixer::none)
      drop_unneeded_rows(layer);
    else
      run_attention_or_mixer(layer);
    show_to_observer({Stage::resid_mid, layer}, ActivationBuffer::residual);
    if (plan_.ends_before({Stage::mlp_in, layer})) return;
    if (config.mlp && !run_mlp_or_experts(layer)) return;
    if (plan_.ends_before({Stage::per_layer_out, layer})) return;
    if (config_.per_layer.width > 0) {
      backend_.project_per_layer_input(choose_residual_addition({Stage::per_layer_out, layer}));
      show_update({Stage::per_layer_out, layer});
    }
    if (config_.layer_scalars) backend_.scale_residual();
    show_to_observer({Stage::resid_post, layer}, ActivationBuffer::residual);
  }

  void run_attention_or_mixer(std::int64_t layer) {
    show_norm_scale({Stage::ln1_scale, layer});
    backend_.apply_norm(NormSite::before_attention);
    show_to_observer({Stage::ln1_normalized, layer}, ActivationBuffer::normalized);
    if (config_.layers[as_index(layer)].has_attention()) return run_attention(layer);
    compute_mixer(layer);
    if (plan_.ends_before({Stage::mixer_out, layer})) return;
    drop_unneeded_rows(layer);
    project_mixer_output(layer);
  }

  // Runs the MLP or the experts of a layer. Returns false if the pass ends before their output.
  bool run_mlp_or_experts(std::int64_t layer) {
    normalize_mlp_input(layer);
    show_to_observer({Stage::ln2_normalized, layer}, ActivationBuffer::normalized);
    if (plan_.ends_before({Stage::router_logits, layer})) return false;
    if (config_.layers[as_index(layer)].experts) {
      backend_.project_router();
      show_to_observer({Stage::router_logits, layer}, ActivationBuffer::router_logits);
      backend_.choose_experts();
      show_to_observer({Stage::expert_weights, layer}, ActivationBuffer::expert_weights);
      show_to_observer({Stage::expert_indices, layer}, ActivationBuffer::expert_indices);
    }
    if (plan_.ends_before({Stage::mlp_pre, layer})) return false;
    const HookPoint output{Stage::mlp_out, layer};
    run_mlp(layer, choose_residual_addition(output));
    if (plan_.ends_before(output)) return false;
    show_update(output);
    return true;
  }

  void run_attention(std::int64_t layer) {
    if (plan_.ends_before({Stage::kv_latent, layer})) return;
    if (config_.has_latent_attention()) backend_.project_latents();
    show_to_observer({Stage::kv_latent, layer}, ActivationBuffer::kv_latent);
    if (plan_.ends_before({Stage::q, layer})) return;
    compute_queries_and_keys(layer);
    const bool beside = config_.layers[as_index(layer)].attention_beside;
    if (beside) compute_mixer(layer);
    if (plan_.ends_before({Stage::attn_scores, layer})) return;
    compute_attention(layer);
    const HookPoint result{Stage::result, layer};
    show_derived_point(result, ActivationBuffer::z, [=, this](ConstTensorView z) {
      return head_contributions(z, layer_weights(layer).o.weight);
    });
    if (beside) project_mixer_output(layer);
    const HookPoint output{Stage::attn_out, layer};
    if (plan_.ends_before(output)) return;
    backend_.project_output(choose_residual_addition(output));
    show_update(output);
  }

  void compute_mixer(std::int64_t layer) {
    show_to_observer({Stage::mixer_in, layer}, ActivationBuffer::normalized);
    const HookPoint state{Stage::mixer_state, layer};
    if (plan_.ends_before(state)) return;
    const auto rows = observer_.wants(state) ? rows_with_state(state) : std::vector<std::int64_t>();
    backend_.run_recurrent_mixer(rows);
    timer_->end_step(state);
    if (!rows.empty()) observer_.observe(state, backend_.mixer_states());
  }

  void project_mixer_output(std::int64_t layer) {
    const HookPoint output{Stage::mixer_out, layer};
    if (plan_.ends_before(output)) return;
    backend_.project_mixer_output(choose_residual_addition(output));
    show_update(output);
  }

  void show_update(HookPoint output) {
    show_to_observer(output, ActivationBuffer::update);
    if (is_edited(output)) backend_.add_update_to_residual();
  }

  // Rows whose recurrent state the observer requests; by default the last row of each sequence.
  std::vector<std::int64_t> rows_with_state(HookPoint state) const {
    const auto selected = observer_.selection(state).rows;
    std::vector<std::int64_t> rows(selected.begin(), selected.end());
    for (std::size_t i = 0; selected.empty() && i < batch_.sequences.size(); ++i)
      rows.push_back(batch_.sequences[i].begin + batch_.sequences[i].length - 1);
    return rows;
  }

  // Computes q and k together, stage by stage: projection, norm, rotation.
  void compute_queries_and_keys(std::int64_t layer) {
    backend_.project_qkv(statistics_ != nullptr || observer_.wants({Stage::v, layer}) ||
                         !plan_.ends_before({Stage::attn_scores, layer}));
    for (const auto& [buffer, heads] : projected_)
      backend_.edit_buffer(buffer, [&heads = heads](TensorView all) {  // (rows, heads, d_head)
        const auto d = all.dim(2);
        for (const auto& [head, values] : heads)
          for (std::int64_t row = 0; row < all.dim(0); ++row)
            std::copy_n(values.data<float>() + row * d, d,
                        all.data<float>() + (row * all.dim(1) + head) * d);
      });
    projected_.clear();
    show_to_observer({Stage::q, layer}, ActivationBuffer::q);
    show_to_observer({Stage::k, layer}, ActivationBuffer::k);
    if (!config_.v_norm) show_to_observer({Stage::v, layer}, ActivationBuffer::v);
    if (config_.qk_norm) backend_.apply_qk_norm();
    if (config_.v_norm) show_to_observer({Stage::v, layer}, ActivationBuffer::v);
    show_to_observer({Stage::q_normed, layer}, ActivationBuffer::q);
    show_to_observer({Stage::k_normed, layer}, ActivationBuffer::k);
    if (statistics_ != nullptr) statistics_->collect_before_rotation(backend_, layer);
    backend_.apply_rope();
    show_to_observer({Stage::rot_q, layer}, ActivationBuffer::q);
    show_to_observer({Stage::rot_k, layer}, ActivationBuffer::k);
    if (statistics_ != nullptr) statistics_->collect_after_rotation(backend_, layer);
  }

  void compute_attention(std::int64_t layer) {
    const HookPoint scores{Stage::attn_scores, layer};
    const HookPoint pattern{Stage::pattern, layer};
    if (observer_.wants(scores) || observer_.wants(pattern)) show_scores(scores, pattern);
    if (plan_.ends_before({Stage::z, layer})) return;
    drop_unneeded_rows(layer);
    backend_.compute_attention();
    if (needs_attention_statistics()) statistics_->collect_after_attention(backend_, layer);
    if (is_edited(scores) || is_edited(pattern)) backend_.recompute_edited_rows(shown_);
    show_to_observer({Stage::z, layer}, ActivationBuffer::z);
  }

  void show_scores(HookPoint scores, HookPoint pattern) {
    score_rows_ = rows_to_score();
    const Shape shape{config_.n_heads, std::ssize(score_rows_), batch_.longest()};
    scores_ = observer_.wants(scores) ? Tensor(shape) : Tensor();
    pattern_ = observer_.wants(pattern) ? Tensor(shape) : Tensor();
    shown_ = {score_rows_, scores_, pattern_, is_edited(scores) || is_edited(pattern)};
    backend_.compute_row_scores(shown_);
    show_tensor(scores, scores_);
    if (is_edited(scores) && observer_.wants(pattern)) backend_.recompute_attention_pattern(shown_);
    show_tensor(pattern, pattern_);
  }

  std::vector<std::int64_t> rows_to_score() const {
    const auto chosen = observer_.score_rows();
    if (!chosen.empty()) return {chosen.begin(), chosen.end()};
    std::vector<std::int64_t> every_row(as_index(batch_.rows()));
    std::iota(every_row.begin(), every_row.end(), 0);
    return every_row;
  }

  // Runs the MLP in chunks of rows, or in one chunk if an observer reads or edits its activations.
  void run_mlp(std::int64_t layer, ResidualAddMode addition) {
    const bool wanted = observer_.wants({Stage::mlp_pre, layer}) ||
                        observer_.wants({Stage::mlp_pre_linear, layer}) ||
                        observer_.wants({Stage::mlp_post, layer});
    const auto rows = backend_.active_rows();
    const bool whole = wanted || addition == ResidualAddMode::deferred;
    const auto chunk = whole ? rows : std::min(rows, backend_.mlp_chunk_rows());
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
      const auto count = std::min(chunk, rows - begin);
      backend_.project_gate_up(begin, count);
      show_to_observer({Stage::mlp_pre, layer}, ActivationBuffer::gate);
      show_to_observer({Stage::mlp_pre_linear, layer}, ActivationBuffer::up);
      backend_.apply_mlp_activation(count);
      show_to_observer({Stage::mlp_post, layer}, ActivationBuffer::gate);
      if (plan_.ends_before({Stage::mlp_out, layer})) continue;
      backend_.project_down(begin, count, addition);
      timer_->end_step({Stage::mlp_out, layer});
    }
  }

  void unembed() {
    if (plan_.ends_before({Stage::final_scale})) return;
    drop_unneeded_rows(config_.n_layers);
    show_norm_scale({Stage::final_scale});
    backend_.apply_norm(NormSite::after_layers);
    show_to_observer({Stage::final_normalized}, ActivationBuffer::normalized);
    if (plan_.ends_before({Stage::logits})) return;
    backend_.project_logits();
    show_to_observer({Stage::logits}, ActivationBuffer::logits);
  }

  bool wants_derived_point(HookPoint point) const {
    return has_hook_point(config_, point) && observer_.wants_derived() && observer_.wants(point);
  }

  // Passes compute(x) to an observer of a derived hook point; x: the selected rows of a buffer.
  template <typename Compute>
  void show_derived_point(HookPoint point, ActivationBuffer buffer, Compute compute) {
    if (!wants_derived_point(point)) return;
    backend_.read_buffer(buffer, observer_.selection(point),
                         [=, this](ConstTensorView x) { observer_.observe(point, compute(x)); });
  }

  void show_norm_scale(HookPoint point) {
    show_derived_point(point, ActivationBuffer::residual, [this](ConstTensorView x) {
      return norm_divisors(x, config_.norm, config_.norm_eps);
    });
  }

  // Shows each head's copy of the residual stream to observers: first the common input of q, k and
  // v, then the input of each of the three. Heads with an edited input are projected separately.
  void show_head_inputs(std::int64_t layer) {
    const auto& weights = layer_weights(layer);
    const auto shared = collect_head_inputs({Stage::attn_in, layer}, config_.n_heads, Tensor());
    project_edited_inputs({Stage::q_input, layer}, shared, ActivationBuffer::q, weights.q);
    project_edited_inputs({Stage::k_input, layer}, shared, ActivationBuffer::k, weights.k);
    project_edited_inputs({Stage::v_input, layer}, shared, ActivationBuffer::v, weights.v);
  }

  void project_edited_inputs(HookPoint point, const Tensor& shared, ActivationBuffer buffer,
                             const Linear& linear) {
    if (linear.weight.values.empty()) return;  // the layer uses keys and values of another one
    const auto kv_heads = config_.n_kv_heads_of(config_.layer(point.layer));
    const auto heads = point.stage == Stage::q_input ? config_.n_heads : kv_heads;
    const auto inputs = collect_head_inputs(point, heads, shared);
    if (inputs.empty()) return;
    auto edited = project_edited_heads(config_, layer_weights(point.layer).input_norm, linear,
                                       copy_residual_to_host(), inputs);
    if (!edited.empty()) projected_.emplace_back(buffer, std::move(edited));
  }

  // Returns the inputs of the heads, shape (rows, heads, d_model), after the observer has seen or
  // edited them; empty if every head reads the residual stream. `shared` is the result of
  // hook_attn_in, or empty if the observer does not edit that hook. Query head h and key head h
  // both read copy h of `shared`, as in TransformerLens.
  Tensor collect_head_inputs(HookPoint point, std::int64_t heads, const Tensor& shared) {
    const bool wanted = wants_derived_point(point);
    const bool edits = wanted && observer_.edits(point);
    if (shared.empty() && !edits) {
      show_derived_point(point, ActivationBuffer::residual,
                         [=](ConstTensorView x) { return repeat_per_head(x, heads); });
      return {};
    }
    Tensor inputs = shared.empty() ? repeat_per_head(copy_residual_to_host(), heads)
                                   : copy_heads(shared, 0, heads);
    if (edits) {
      observer_.edit(point, inputs);
    } else if (wanted) {
      const auto rows = observer_.selection(point).rows;
      observer_.observe(point, rows.empty() ? inputs.view() : copy_rows(inputs, rows));
    }
    return inputs;
  }

  Tensor copy_residual_to_host() {  // (rows, d_model) on the host
    const auto copy = backend_.copy_buffer(ActivationBuffer::residual, {});
    Tensor x(copy.view.shape());
    copy_values(x, copy.view);
    return x;
  }

  // An observer may edit the input of the MLP without changing the residual stream.
  void normalize_mlp_input(std::int64_t layer) {
    const HookPoint point{Stage::mlp_in, layer};
    const bool edits = wants_derived_point(point) && observer_.edits(point);
    const auto residual =
        edits ? backend_.copy_buffer(ActivationBuffer::residual, {}) : ActivationCopy();
    if (edits)
      backend_.edit_buffer(ActivationBuffer::residual,
                           [=, this](TensorView x) { observer_.edit(point, x); });
    else
      show_derived_point(point, ActivationBuffer::residual, [](ConstTensorView x) { return x; });
    show_norm_scale({Stage::ln2_scale, layer});
    backend_.apply_norm(NormSite::before_mlp);
    if (edits) backend_.overwrite_buffer(ActivationBuffer::residual, residual);
  }

  const LayerWeights& layer_weights(std::int64_t layer) const {
    return backend_.model().weights.layers[as_index(layer)];
  }

  void drop_unneeded_rows(std::int64_t layer) {
    if (!plan_.drops_rows_in(layer)) return;
    backend_.drop_rows_except(plan_.kept_rows());
    timer_->end_named_step("captured rows");
  }

  ResidualAddMode choose_residual_addition(HookPoint update) const {
    if (is_edited(update)) return ResidualAddMode::deferred;
    return observer_.wants(update) ? ResidualAddMode::shown : ResidualAddMode::at_once;
  }

  bool needs_attention_statistics() const {
    return statistics_ != nullptr && statistics_->accumulates_attention();
  }

  bool is_edited(HookPoint point) const { return observer_.wants(point) && observer_.edits(point); }

  // Call directly after the step that computes the activation: the call ends that step's timing.
  void show_to_observer(HookPoint point, ActivationBuffer buffer) {
    timer_->end_step(point);
    if (!has_hook_point(config_, point) || !observer_.wants(point)) return;
    if (observer_.keeps_on_device())
      copy_for_observer(point, buffer);
    else if (observer_.edits(point))
      backend_.edit_buffer(buffer, [=, this](TensorView tensor) { observer_.edit(point, tensor); });
    else
      backend_.read_buffer(buffer, observer_.selection(point),
                           [=, this](ConstTensorView tensor) { observer_.observe(point, tensor); });
    timer_->end_named_step("captured rows");
  }

  void copy_for_observer(HookPoint point, ActivationBuffer buffer) {
    const auto copy = backend_.copy_buffer(buffer, observer_.selection(point));
    if (observer_.edits(point)) backend_.wait_until_idle();  // keep() reads the values immediately
    if (observer_.keep(point, copy)) {
      if (!observer_.edits(point))
        reject("observer: keep() gave values back at {}, where edits() is false", hook_name(point));
      backend_.overwrite_buffer(buffer, copy);
    }
  }

  void show_tensor(HookPoint point, TensorView tensor) {
    if (is_edited(point))
      observer_.edit(point, tensor);
    else if (observer_.wants(point))
      observer_.observe(point, tensor);
  }

  Backend& backend_;
  const ModelConfig& config_;
  const Batch& batch_;
  Observer& observer_;
  RunOptions options_;
  LayerStatistics* statistics_ = nullptr;
  KvCacheMemory* store_ = nullptr;
  StepTimer no_timer_;
  StepTimer* timer_ = &no_timer_;
  PassPlan plan_;
  std::vector<std::int64_t> score_rows_;
  Tensor scores_;          // (n_heads, score rows, keys) or empty
  Tensor pattern_;         // (n_heads, score rows, keys) or empty
  AttentionScores shown_;  // views of scores_ and pattern_
  std::vector<std::pair<ActivationBuffer, std::vector<EditedHead>>> projected_;
};

void check_start_layer(const RunOptions& options, const Batch& batch, const ModelConfig& model) {
  const auto layer = options.start_at_layer;
  if (layer < 0 || layer > model.n_layers)
    reject("start_at_layer: found {}, expected 0 to {}", layer, model.n_layers);
  const auto& residual = options.residual;
  if (residual.empty()) {
    if (layer > 0)
      reject("start_at_layer {} needs the residual stream before that layer; none is given", layer);
    return;
  }
  if (model.per_layer.width > 0 || (layer > 0 && !model.has_equal_heads()))
    reject("residual: layers of {} use the tokens or keys of earlier layers; start with tokens",
           model.family);
  const Shape expected{batch.rows(), model.d_model};
  if (residual.dtype() != DType::f32 || residual.shape() != expected || !residual.is_contiguous())
    reject("residual: found {} of shape {}, expected contiguous float32 of shape {}",
           dtype_name(residual.dtype()), residual.shape().to_string(), expected.to_string());
}

}  // namespace

void forward(Backend& backend, const Batch& batch, Observer& observer, const RunOptions& options,
             StepTimer* timer) {
  check_batch_tokens(batch, backend.config());
  check_start_layer(options, batch, backend.config());
  ForwardPass pass(backend, batch, observer, {backend.config(), observer, batch.rows(), options});
  pass.set_run_options(options);
  if (timer != nullptr) pass.use_timer(*timer);
  pass.run();
}

void forward(Backend& backend, const Batch& batch, Observer& observer,
             LayerStatistics& statistics) {
  check_batch_tokens(batch, backend.config());
  const auto last = statistics.accumulates_attention() ? Stage::z : Stage::rot_k;
  ForwardPass pass(backend, batch, observer, {backend.config(), observer, batch.rows(), last});
  pass.use_statistics(statistics);
  pass.run();
}

void forward(Backend& backend, const Batch& batch, Observer& observer, KvCacheMemory& store) {
  check_batch_tokens(batch, backend.config());
  PassPlan plan(backend.config(), observer, batch.rows());
  plan.include_all_keys_and_values(backend.config());
  ForwardPass pass(backend, batch, observer, std::move(plan));
  pass.use_kv_cache(store);
  pass.run();
}

void forward(const LoadedCheckpoint& model, const Batch& batch, Observer& observer,
             const RunOptions& options) {
  if (options.residual.device().kind != Device::Kind::cpu)
    reject("a residual on {}: the model is on the CPU; copy it to the host first",
           device_name(options.residual.device()));
  forward(*make_backend(model), batch, observer, options);
}

}  // namespace qkscope
