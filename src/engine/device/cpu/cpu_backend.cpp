#include "engine/device/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>

#include "base/core/numbers.h"

namespace qkscope {
namespace {

struct CpuKvCacheMemory : KvCacheMemory {
  std::vector<LayerKeyValueCache> layers;
  std::vector<MixerState> recurrent;  // (layers); empty tensors in layers without a state
};

}  // namespace

void CpuBackend::begin_pass(const Batch& batch) {
  batch_ = &batch;
  stored_ = nullptr;
  recurrent_ = nullptr;
  kept_.clear();
  layer_input_ = {};
  mixed_ = {};
  shared_.clear();
  tables_.clear();
  for (const auto& rope : config().ropes) tables_.push_back(rotary_table(rope, batch.sequences));
}

std::unique_ptr<KvCacheMemory> CpuBackend::make_kv_cache(std::int64_t sequences, std::int64_t) {
  auto store = std::make_unique<CpuKvCacheMemory>();
  for (const auto& layer : config().layers) {
    store->layers.emplace_back(sequences, config().n_kv_heads_of(layer), config().d_head_of(layer),
                               config().d_value_of(layer));
    store->recurrent.push_back(layer.has_state() ? make_mixer_state(config().mixer, sequences)
                                                 : MixerState());
  }
  return store;
}

void CpuBackend::use_kv_cache(KvCacheMemory& store) {
  stored_ = &dynamic_cast<CpuKvCacheMemory&>(store).layers;
  recurrent_ = &dynamic_cast<CpuKvCacheMemory&>(store).recurrent;
  recurrent_after_.clear();
  recurrent_after_.resize(recurrent_->size());
}

void CpuBackend::embed_tokens() {
  residual_ = Tensor({batch_->rows(), config().d_model});
  qkscope::embed_tokens(batch_->ids, model().weights.embedding,
                        static_cast<float>(config().embedding_scale), residual_);
  if (config().embedding_norm) normalize_rows(residual_, model().weights.final_norm, residual_);
  allocate_activations();
}

void CpuBackend::embed_per_layer_inputs() {
  const auto& w = model().weights;
  const auto width = config().per_layer.width;
  const auto rows = active_rows();
  per_layer_inputs_ = Tensor({rows, config().n_layers, width});
  for (std::int64_t row = 0; row < rows; row += kCpuMlpRows) {
    const auto end = std::min(row + kCpuMlpRows, rows);
    const auto inputs = per_layer_inputs_.view().rows(row, end);
    const auto matrix = inputs.reshaped({end - row, config().n_layers * width});
    apply_linear(residual_.view().rows(row, end), w.per_layer_projection, matrix);
    scale_tensor(matrix, 1.0 / std::sqrt(to_double(config().d_model)));
    rms_norm(inputs, w.per_layer_norm.weight, config().norm_eps, inputs);
    Tensor tokens(matrix.shape());
    qkscope::embed_tokens(std::span(batch_->ids).subspan(as_index(row), as_index(end - row)),
                          w.per_layer_embedding, std::sqrt(static_cast<float>(width)), tokens);
    add_in_place(matrix, tokens);
    scale_tensor(matrix, std::sqrt(0.5));
  }
}

void CpuBackend::project_per_layer_input(ResidualAddMode addition) {
  const auto width = config().per_layer.width;
  Tensor gate({active_rows(), width});
  Tensor inputs(gate.shape());
  for (std::int64_t row = 0; row < active_rows(); ++row)
    std::copy_n(per_layer_inputs_.data<float>() + (row * config().n_layers + layer_) * width, width,
                inputs.data<float>() + row * width);
  apply_linear(residual_, weights_->per_layer_gate, gate);
  apply_gated_activation({config().activation}, gate, inputs, gate);
  apply_linear(gate, weights_->per_layer_output, update_);
  normalize_or_add_update(0, active_rows(), weights_->post_per_layer_norm, addition);
}

void CpuBackend::allocate_activations() {
  normalized_ = Tensor(residual_.shape());
  update_ = Tensor(residual_.shape());
  allocate_head_buffers(config().layers.front());
}

void CpuBackend::allocate_head_buffers(const LayerConfig& layer) {
  const auto rows = active_rows();
  const auto& c = config();
  q_ = Tensor({rows, c.n_heads, c.d_head_of(layer)});
  k_ = Tensor({rows, c.n_kv_heads_of(layer), c.d_head_of(layer)});
  v_ = Tensor({rows, c.n_kv_heads_of(layer), c.d_value_of(layer)});
  z_ = Tensor({rows, c.n_heads, c.d_value_of(layer)});
  if (c.has_attention_gate()) attention_gate_ = Tensor(z_.shape());
}

void CpuBackend::begin_layer(std::int64_t layer) {
  layer_ = layer;
  cache_appended_ = false;
  cached_rows_.reset();
  weights_ = &model().weights.layers[as_index(layer)];
  // Reallocates q, k and v if rows were dropped or if the number or size of heads changed.
  const auto& c = layer_config();
  const Shape keys{active_rows(), config().n_kv_heads_of(c), config().d_head_of(c)};
  if (k_.shape() != keys) allocate_head_buffers(c);
}

void CpuBackend::apply_norm(NormSite norm) {
  const auto& weights = norm == NormSite::before_attention ? weights_->input_norm
                        : norm == NormSite::before_mlp     ? weights_->mlp_norm
                                                           : model().weights.final_norm;
  const bool beside = config().parallel_residual && norm == NormSite::before_mlp;
  normalize_rows(beside ? layer_input_ : residual_, weights, normalized_);
}

void CpuBackend::project_latents() {
  const auto& w = weights_->latent;
  const auto& latent = config().latent;
  kv_latent_ = Tensor({active_rows(), latent.kv_rank});
  rotated_key_ = Tensor({active_rows(), w.rotated_key.weight.out()});
  apply_linear(normalized_, {{w.kv, kv_latent_}, {w.rotated_key, rotated_key_}});
  rms_norm(kv_latent_, w.kv_norm.weight, latent.norm_eps, kv_latent_);
  if (latent.q_rank == 0) return;
  q_latent_ = Tensor({active_rows(), latent.q_rank});
  apply_linear(normalized_, w.q, q_latent_);
  rms_norm(q_latent_, w.q_norm.weight, latent.norm_eps, q_latent_);
}

// Latent attention (MLA): each key is W_UK times the latent, followed by the shared RoPE part.
void CpuBackend::project_qkv_from_latents(bool values) {
  const auto& w = *weights_;
  apply_linear(config().latent.q_rank > 0 ? q_latent_ : normalized_, w.q, as_matrix(q_));
  const auto shared = rotated_key_.dim(1);
  const auto own = config().d_head - shared;
  Tensor projected({active_rows(), config().n_heads * own});
  apply_linear(kv_latent_, w.k, projected);
  if (values) apply_linear(kv_latent_, w.v, as_matrix(v_));
  parallel_for(k_.dim(0) * k_.dim(1), [&](std::int64_t i) {
    float* const key = k_.data<float>() + i * config().d_head;
    std::copy_n(projected.data<float>() + i * own, own, key);
    std::copy_n(rotated_key_.data<float>() + i / k_.dim(1) * shared, shared, key + own);
  });
}

void CpuBackend::project_qkv(bool values) {
  if (config().has_latent_attention()) return project_qkv_from_latents(values);
  const auto& w = *weights_;
  values = values || config().v_norm;  // apply_qk_norm() reads v
  if (layer_config().shares_kv()) {
    apply_linear(normalized_, w.q, as_matrix(q_));
    const auto& shared = shared_.at(layer_config().kv_layer);
    k_ = kept_.empty() ? copy_tensor(shared.k) : copy_rows(shared.k, kept_);
    v_ = kept_.empty() ? copy_tensor(shared.v) : copy_rows(shared.v, kept_);
  } else if (values)
    apply_linear(normalized_, {{w.q, as_matrix(q_)}, {w.k, as_matrix(k_)}, {w.v, as_matrix(v_)}});
  else
    apply_linear(normalized_, {{w.q, as_matrix(q_)}, {w.k, as_matrix(k_)}});
  if (values && config().has_attention_gate())
    apply_linear(normalized_, w.attention_gate, as_matrix(attention_gate_));
  if (config().qkv_clip > 0.0) {
    clip(q_, config().qkv_clip);
    clip(k_, config().qkv_clip);
    if (values) clip(v_, config().qkv_clip);
  }
}

void CpuBackend::apply_qk_norm() {
  const auto normalize = [&](Tensor& heads, const NormWeights& norm) {
    const auto rows = config().qk_norm_whole ? as_matrix(heads) : heads.view();
    rms_norm(rows, norm.weight, config().norm_eps, rows);
  };
  normalize(q_, weights_->q_norm);
  if (layer_config().shares_kv()) return;
  normalize(k_, weights_->k_norm);
  if (config().v_norm) rms_norm(v_, weights_->v_norm.weight, config().norm_eps, v_);
}

void CpuBackend::apply_rope() {
  const int rope = config().layers[as_index(layer_)].rope;
  if (rope >= 0) {
    const auto& table = tables_[as_index(rope)];
    const auto& rotated = config().ropes[as_index(rope)];
    for (Tensor* const x : {&q_, &k_}) {
      if (x == &k_ && layer_config().shares_kv()) continue;  // rotated already
      apply_rotary(table, config().rope_interleaved, *x, rotated.begin);
      if (config().rope_sorts_pairs) deinterleave_rotary_pairs(*x, rotated.begin, rotated.dim);
    }
    if (config().rotated_qk_norm) apply_qk_norm();
  }
  const auto& scaling = config().query_scaling;
  if (scaling && !(scaling->without_rope && rope >= 0))
    scale_queries(q_, *scaling, batch_->sequences, kept_);
}

AttentionInput CpuBackend::make_attention_input() const {
  return {.q = q_,
          .k = k_,
          .v = v_,
          .sequences = batch_->sequences,
          .queries = kept_,
          .scale = static_cast<float>(config().score_scale(layer_)),
          .window = config().layers[as_index(layer_)].window,
          .chunk = config().layers[as_index(layer_)].chunk,
          .softcap = static_cast<float>(config().attention_softcap),
          .sinks = weights_->sinks};
}

void CpuBackend::append_to_cache() {
  if (!cache_appended_ && !layer_config().shares_kv())
    (*stored_)[as_index(layer_)].append(k_, v_, batch_->sequences);
  cache_appended_ = true;
}

AttentionInput CpuBackend::make_cached_attention_input() {
  auto input = make_attention_input();
  if (stored_ == nullptr) return input;
  append_to_cache();
  if (!cached_rows_)
    cached_rows_ = (*stored_)[as_index(layer_config().kv_source(layer_))].unpack(batch_->sequences);
  input.k = cached_rows_->k;
  input.v = cached_rows_->v;
  return input;
}

void CpuBackend::compute_attention() {
  row_sums_.resize(keeps_row_sums_ ? as_index(q_.dim(0) * q_.dim(1)) : 0);
  auto input = make_attention_input();
  if (std::ranges::find(config().layers, layer_, &LayerConfig::kv_layer) != config().layers.end())
    shared_[layer_] = {copy_tensor(k_), copy_tensor(v_)};  // for later layers
  if (stored_ == nullptr) return qkscope::compute_attention(input, z_, row_sums_);
  append_to_cache();
  const auto packed =
      (*stored_)[as_index(layer_config().kv_source(layer_))].packed_view(batch_->sequences);
  input.packed = &packed;
  qkscope::compute_attention(input, z_, row_sums_);
}

void CpuBackend::run_recurrent_mixer(std::span<const std::int64_t> state_rows) {
  QKSCOPE_ASSERT(kept_.empty());
  const auto& c = config().mixer;
  mixed_ = Tensor({active_rows(), c.value_heads, c.d_value});
  mixer_states_ = {};
  if (!state_rows.empty()) mixer_states_ = Tensor(c.state_shape(std::ssize(state_rows)));
  MixerInput input{c, weights_->mixer, normalized_, batch_->sequences, state_rows};
  MixerStateOutputs states{mixer_states_.view()};
  if (recurrent_ != nullptr) {
    input.past = &(*recurrent_)[as_index(layer_)];
    states.memory = &recurrent_after_[as_index(layer_)];
    *states.memory = make_mixer_state(c, std::ssize(batch_->sequences));
  }
  qkscope::apply_mixer(input, states, mixed_);
}

// Recurrent states are copied to the cache last, so that a failed pass leaves it unchanged.
void CpuBackend::finish_pass() {
  if (recurrent_ == nullptr) return;
  const auto copy = [&](const Tensor& from, Tensor& to) {
    if (from.empty()) return;
    const auto bytes = from.view().size_bytes() / batch_->sequences.size();
    for (std::size_t i = 0; i < batch_->sequences.size(); ++i)
      std::memcpy(to.view().bytes() + as_index(batch_->sequences[i].slot) * bytes,
                  from.view().bytes() + i * bytes, bytes);
  };
  for (std::size_t layer = 0; layer < recurrent_->size(); ++layer) {
    copy(recurrent_after_[layer].inputs, (*recurrent_)[layer].inputs);
    copy(recurrent_after_[layer].heads, (*recurrent_)[layer].heads);
  }
  recurrent_after_.clear();
}

TensorView CpuBackend::mlp_chunk_view(Tensor& values) const {
  const auto& experts = config().experts;
  const auto shape = has_experts() ? Shape{chunk_rows_, experts.per_token, experts.d_mlp}
                                   : Shape{chunk_rows_, config().d_mlp_of(layer_config())};
  return {values.view().bytes(), DType::f32, shape};
}

void CpuBackend::project_gate_up(std::int64_t begin, std::int64_t count) {
  chunk_rows_ = count;
  if (const auto size = mlp_chunk_view(gate_).size(); gate_.empty() || gate_.size() < size) {
    gate_ = Tensor({size});
    if (config().gated_mlp()) up_ = Tensor({size});
  }
  const auto x = normalized_.view().rows(begin, begin + count);
  if (has_experts()) {
    by_expert_ = group_rows_by_expert(expert_indices_.view().rows(begin, begin + count),
                                      config().experts.count);
    const auto factors = config().experts.scales_input
                             ? expert_weights_.view().rows(begin, begin + count)
                             : TensorView();
    project_experts_gate_up(x, by_expert_, weights_->experts, factors,
                            buffer_view(ActivationBuffer::gate), buffer_view(ActivationBuffer::up));
  } else {
    project_mlp(x, buffer_view(ActivationBuffer::gate), buffer_view(ActivationBuffer::up));
  }
}

// Projects rows x to gate and up, or to gate alone in an MLP without a gate.
void CpuBackend::project_mlp(ConstTensorView x, TensorView gate, TensorView up) const {
  if (config().gated_mlp())
    apply_linear(x, {{weights_->gate, gate}, {weights_->up, up}});
  else
    apply_linear(x, weights_->up, gate);
}

void CpuBackend::apply_mlp_activation(TensorView gate, ConstTensorView up) const {
  if (config().gated_mlp())
    apply_gated_activation({config().activation, config().swiglu}, gate, up, gate);
  else
    apply_activation(config().activation, weights_->xielu, gate);
}

void CpuBackend::apply_mlp_activation(std::int64_t count) {
  QKSCOPE_ASSERT(count == chunk_rows_);
  apply_mlp_activation(buffer_view(ActivationBuffer::gate), buffer_view(ActivationBuffer::up));
}

void CpuBackend::project_down(std::int64_t begin, std::int64_t count, ResidualAddMode addition) {
  if (has_experts()) {
    const auto factors = config().experts.scales_input
                             ? TensorView()
                             : expert_weights_.view().rows(begin, begin + count);
    project_experts_down(buffer_view(ActivationBuffer::gate), by_expert_, weights_->experts,
                         factors, update_.view().rows(begin, begin + count));
    if (config().experts.shared_d_mlp > 0) add_shared_expert(begin, count);
  }
  // Processes at most kCpuMlpRows rows at a time to save memory: the packed input is d_mlp wide.
  for (std::int64_t row = 0; !has_experts() && row < count; row += kCpuMlpRows) {
    const auto end = std::min(row + kCpuMlpRows, count);
    apply_linear(buffer_view(ActivationBuffer::gate).rows(row, end), weights_->down,
                 update_.view().rows(begin + row, begin + end));
  }
  normalize_or_add_update(begin, count, weights_->post_mlp_norm, addition);
}

void CpuBackend::add_shared_expert(std::int64_t begin, std::int64_t count) {
  for (std::int64_t row = begin; row < begin + count; row += kCpuMlpRows) {
    const auto end = std::min(row + kCpuMlpRows, begin + count);
    Tensor gate({end - row, config().experts.shared_d_mlp});
    Tensor up(gate.shape());
    Tensor output({end - row, config().d_model});
    const auto x = normalized_.view().rows(row, end);
    project_mlp(x, gate, up);
    apply_mlp_activation(gate, up);
    apply_linear(gate, weights_->down, output);
    if (!weights_->shared_gate.weight.values.empty()) {
      Tensor factors({end - row, 1});
      apply_linear(x, weights_->shared_gate, factors);
      apply_activation(Activation::sigmoid, {}, factors);
      for (std::int64_t i = 0; i < end - row; ++i)
        scale_tensor(output.view().rows(i, i + 1), static_cast<double>(factors.data<float>()[i]));
    }
    add_in_place(update_.view().rows(row, end), output);
  }
}

void CpuBackend::normalize_or_add_update(std::int64_t begin, std::int64_t count,
                                         const NormWeights& post_norm, ResidualAddMode addition) {
  const auto update = update_.view().rows(begin, begin + count);
  if (config().residual_scale != 1.0) scale_tensor(update, config().residual_scale);
  if (!post_norm.empty()) normalize_rows(update, post_norm, update);
  if (addition != ResidualAddMode::deferred)
    add_in_place(residual_.view().rows(begin, begin + count), update);
}

void CpuBackend::project_logits() {
  logits_ = Tensor({active_rows(), config().vocab_size});
  apply_linear(normalized_, model().weights.head, logits_);
  if (config().logit_scale != 1.0) scale_tensor(logits_, config().logit_scale);
  if (config().logit_softcap > 0.0) soft_cap(logits_, config().logit_softcap);
}

void CpuBackend::drop_rows_except(std::span<const std::int64_t> rows) {
  QKSCOPE_ASSERT(kept_.empty());
  kept_.assign(rows.begin(), rows.end());
  for (Tensor* const tensor :
       {&residual_, &layer_input_, &q_, &mixed_, &attention_gate_, &per_layer_inputs_})
    if (!tensor->empty()) *tensor = copy_rows(*tensor, rows);
  for (auto& table : tables_) table = {copy_rows(table.cos, rows), copy_rows(table.sin, rows)};
  normalized_ = Tensor(residual_.shape());
  update_ = Tensor(residual_.shape());
  z_ = Tensor({q_.dim(0), q_.dim(1), v_.dim(2)});
}

TensorView CpuBackend::buffer_view(ActivationBuffer buffer) {
  if (buffer == ActivationBuffer::kv_latent) return kv_latent_;
  // One tensor per value of enum ActivationBuffer, in the same order.
  Tensor* const tensors[] = {
      &residual_,       &normalized_,     &q_,    &k_,  &v_,     &z_, &update_, &router_logits_,
      &expert_weights_, &expert_indices_, &gate_, &up_, &logits_};
  auto& chosen = *tensors[static_cast<std::size_t>(buffer)];
  return buffer == ActivationBuffer::gate || buffer == ActivationBuffer::up ? mlp_chunk_view(chosen)
                                                                            : chosen.view();
}

void CpuBackend::read_buffer(ActivationBuffer buffer, const Selection& selection,
                             HostTensorCallback show) {
  ConstTensorView whole = buffer_view(buffer);
  if (selection.rows.empty()) return show(whole);
  Shape shape = whole.shape();
  shape[0] = std::ssize(selection.rows);
  const auto heads = selection.heads.empty() ? 1 : whole.dim(1);
  if (!selection.heads.empty()) {
    shape[1] = std::ssize(selection.heads);
    whole = whole.reshaped({whole.dim(0) * heads, whole.dim(2)});
  }
  std::vector<std::int64_t> chosen;  // rows, or heads of rows, of `whole`
  for (const auto row : selection.rows) {
    const auto first = index_among_kept_rows(kept_, row) * heads;
    if (selection.heads.empty()) chosen.push_back(first);
    for (const auto head : selection.heads) chosen.push_back(first + head);
  }
  const Tensor part = copy_rows(whole, chosen);
  show(part.view().reshaped(shape));
}

ActivationCopy CpuBackend::copy_buffer(ActivationBuffer buffer, const Selection& selection) {
  auto copy = std::make_shared<Tensor>();
  read_buffer(buffer, selection, [&](ConstTensorView values) { *copy = copy_tensor(values); });
  return {copy, copy->view()};
}

void CpuBackend::add_moments(ActivationBuffer buffer, const MomentRequest& request,
                             MomentConsumer& sink) {
  const auto x = buffer_view(buffer);
  for (std::size_t i = 0; i < batch_->sequences.size(); ++i) {
    const auto document = compute_document_moments(x, batch_->sequences[i], request);
    if (document.nonfinite_head)
      sink.throw_non_finite({*document.nonfinite_head, static_cast<std::int64_t>(i)});
    sink.add(document.moments);
  }
}

void CpuBackend::add_attention_statistics(const AttentionRequest& request,
                                          AttentionConsumer& sink) {
  QKSCOPE_ASSERT(!row_sums_.empty() && kept_.empty());
  sink.add(compute_attention_statistics({make_attention_input(), row_sums_, batch_->ids}, request));
}

}  // namespace qkscope
