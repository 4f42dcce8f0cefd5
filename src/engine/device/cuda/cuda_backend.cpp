#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/device/backend.h"
#include "engine/device/cuda/attention/attention.h"
#include "engine/device/cuda/attention/library_attention.h"
#include "engine/device/cuda/cuda_devices.h"
#include "engine/device/cuda/memory/activation_copies.h"
#include "engine/device/cuda/memory/activations.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/memory/device_weights.h"
#include "engine/device/cuda/mixer/recurrent_mixer.h"
#include "engine/device/cuda/pass_kernels.h"
#include "engine/device/cuda/pass_rows.h"
#include "engine/device/cuda/products/expert_mixture.h"
#include "engine/device/cuda/products/products.h"
#include "engine/device/cuda/residual_updates.h"
#include "engine/device/cuda/statistics/moment_statistics.h"
#include "engine/device/cuda/statistics/score_statistics.h"
#include "engine/device/memory_plan.h"
#include "engine/ops/attention.h"
#include "engine/ops/statistics.h"

namespace qkscope::cuda {
namespace {

constexpr std::int64_t kMostStatisticsBytes = std::int64_t{64} << 20;  // in flight to the host

int use_device(int device) {
  check(cudaSetDevice(device), "use the GPU");
  return device;
}

class CudaBackend : public Backend {
 public:
  CudaBackend(const LoadedCheckpoint& model, const BackendOptions& options,
              const DeviceBudget& budget)
      : Backend(model),
        dtype_(options.dtype),
        device_(use_device(options.device.index)),
        capability_(compute_capability(device_)),
        budget_(budget),
        products_(dtype_, stream_),
        hopper_attention_(model.config, dtype_, device_, stream_),
        hopper_chunks_(model.config, dtype_, device_, stream_),
        cudnn_attention_(
            hopper_attention_.has_kernel()
                ? nullptr
                : std::make_unique<CudnnAttention>(model.config, dtype_, device_, stream_)),
        has_gated_product_(has_gated_product(model.config, dtype_, device_)),
        weights_(model, {.dtype = dtype_,
                         .device = device_,
                         .streamed = budget_.streams_weights(),
                         .interleaves_gate_up = has_gated_product_,
                         .interleaves_experts = has_grouped_products(config(), dtype_, device_)}),
        rows_(model.config, dtype_, stream_),
        copies_(stream_),
        a_(model.config, dtype_),
        updates_(model.config, dtype_, products_, a_, stream_),
        mixture_(model.config, dtype_, device_, has_grouped_products(config(), dtype_, device_),
                 products_, copies_, stream_),
        mixer_(model.config.mixer, dtype_, products_, stream_),
        results_(stream_, kMostStatisticsBytes),
        moments_(results_, stream_),
        scores_(results_, stream_) {}

  void begin_pass(const Batch& batch) override {
    use_device(device_);
    copies_.discard_all();
    results_.discard_all();
    pending_ = {};
    updates_.discard_deferred_update();
    batch_ = &batch;
    keeps_row_sums_ = false;
    store_ = nullptr;
    continues_ = std::ranges::any_of(batch.sequences,
                                     [](const Sequence& sequence) { return sequence.past > 0; });
    budget_.check_rows_fit(batch.rows());
    rows_.begin_pass(batch);
    if (!continues_) begin_attention(batch.sequences);
    a_.begin_pass(batch.rows());
    mixer_.begin_pass(batch);
    moments_.begin_batch(batch);
    scores_.begin_batch(batch);
  }

  std::unique_ptr<KeyValueStore> make_key_value_store(std::int64_t sequences,
                                                      std::int64_t positions) override {
    use_device(device_);
    return std::make_unique<CudaKeyValueStore>(config(), dtype_, budget_, sequences, positions);
  }

  void use_key_value_store(KeyValueStore& store) override {
    store_ = static_cast<CudaKeyValueStore*>(&store);
    stored_rows_.upload(store_->cache_rows_to_write(batch_->sequences), "row numbers", stream_);
    if (auto* states = store_->recurrent(); states != nullptr) mixer_.use_states(*states);
    if (continues_) rows_.set_key_rows(store_->first_cache_rows(batch_->sequences));
  }

  void embed() override {
    cuda::embed({.table = weights_.embedding(),
                 .ids = rows_.token_ids(),
                 .y = a_.residual(),
                 .count = batch_->rows(),
                 .n = config().d_model,
                 .scale = static_cast<float>(config().embedding_scale),
                 .dtype = dtype_},
                stream_);
    if (config().embedding_norm)
      normalize_residual(a_.residual(), weights_.final_norm(), a_.residual());
  }

  void embed_positions() override {
    a_.reserve_update(batch_->rows());
    cuda::embed({.table = weights_.position_embedding(),
                 .ids = rows_.positions(),
                 .y = a_.residual_update(),
                 .count = batch_->rows(),
                 .n = config().d_model,
                 .dtype = dtype_},
                stream_);
  }

  void put_residual(ConstTensorView residual) override {
    const auto whole = view(ActivationBuffer::residual);
    if (residual.device().kind == Device::Kind::cuda)
      copies_.put(residual.data<float>(), whole);
    else
      copies_.put(residual, whole);
  }

  void begin_layer(std::int64_t layer) override {
    layer_ = &weights_.layer(layer, stream_);
    layer_number_ = layer;
    keys_kept_ = false;
    layer_config_ = config().layers[as_index(layer)];
  }

  void keep_layer_input() override {
    const auto bytes = as_index(active_rows() * config().d_model) * dtype_size(dtype_);
    check(cudaMemcpyAsync(a_.reserve_layer_input(active_rows()), a_.residual(), bytes,
                          cudaMemcpyDeviceToDevice, stream_),
          "keep the layer's input");
  }

  void normalize(NormSite which) override {
    const bool beside = config().parallel_residual && which == NormSite::before_mlp;
    normalize_residual(beside ? a_.layer_input() : a_.residual(),
                       which == NormSite::before_attention ? layer_->input_norm
                       : which == NormSite::before_mlp     ? layer_->mlp_norm
                                                           : weights_.final_norm(),
                       a_.normalized());
  }

  void project_latents() override {
    const auto& latent = layer_->latent;
    multiply_rows(a_.normalized(), latent.kv, a_.kv_latent());
    multiply_rows(a_.normalized(), latent.rotated_key, a_.rotated_key());
    normalize_latent(a_.kv_latent(), latent.kv_norm, latent.kv.out);
    if (latent.q.out == 0) return;
    multiply_rows(a_.normalized(), latent.q, a_.q_latent());
    normalize_latent(a_.q_latent(), latent.q_norm, latent.q.out);
  }

  void project_qkv(bool values) override {
    a_.read_queries_from_qkv();
    if (config().has_latent_attention()) return project_from_latents(values);
    auto qkv = layer_->qkv;
    if (!values) qkv.out -= a_.v_width();
    multiply_rows(a_.normalized(), qkv, a_.qkv(), a_.qkv_width());
    if (values && config().has_attention_gate())
      multiply_rows(a_.normalized(), layer_->attention_gate, a_.attention_gate());
    if (config().qkv_clip > 0.0)
      clip(a_.qkv(), active_rows() * a_.qkv_width(), static_cast<float>(config().qkv_clip), dtype_,
           stream_);
  }

  // Defers norm and rotation until q and k are observed or attention needs them, so that both run
  // in one fused kernel. A norm over the concatenation of all heads uses a separate kernel.
  void normalize_heads() override {
    if (!config().qk_norm_whole) {
      pending_.norm = true;
      return;
    }
    const auto normalize_whole = [&](void* x, const DeviceNorm& norm, std::int64_t width) {
      normalize_active_rows(
          {.x = x, .norm = norm, .y = x, .n = width, .row_stride = a_.qkv_width()},
          config().norm_eps);
    };
    normalize_whole(a_.qkv(), layer_->q_norm, a_.q_width());
    normalize_whole(a_.k(), layer_->k_norm, a_.k_width());
  }
  void apply_rope() override { pending_.rotation = true; }

  void attend() override {
    apply_pending();
    append_to_cache();
    const CausalAttentionArguments heads{.q = a_.qkv(),
                                         .k = a_.k(),
                                         .v = a_.v(),
                                         .z = a_.z(),
                                         .window = layer_config_.window,
                                         .scale = scale()};
    const bool needs_row_sums = keeps_row_sums_ || config().has_sinks();
    const auto row_sums =
        needs_row_sums ? scores_.reserve_row_sums(config().n_heads) : SoftmaxRowSums{};
    const auto kernel =
        choose_attention_kernel({.capability = capability_,
                                 .dtype = dtype_,
                                 .d_head = config().d_head,
                                 .d_value = config().d_value(),
                                 .softcap = config().attention_softcap > 0.0,
                                 .sinks = config().has_sinks(),
                                 .own_scale = layer_config_.score_scale != 1.0,
                                 .chosen_rows = rows_.has_dropped_rows() || continues_,
                                 .chunks = layer_config_.chunk > 0},
                                {.flash_infer = hopper_attention_.has_kernel()});
    if (kernel == AttentionKernel::flash_infer) {
      (layer_config_.chunk > 0 ? hopper_chunks_ : hopper_attention_).attend(heads, row_sums);
      attention_kernel_ = "FlashInfer (Hopper)";
    } else if (kernel == AttentionKernel::cudnn && cudnn_attention_->attend(heads)) {
      attention_kernel_ = "cuDNN";
      // cuDNN has a kernel that returns row sums, but its z is not bit-identical to the z of the
      // kernel without them.
      if (keeps_row_sums_) scores_.compute_row_sums(score_source());
    } else {
      attend_with_own_kernel(row_sums);
    }
    if (config().has_sinks())
      apply_sinks({.z = a_.z(),
                   .lse = row_sums.lse,
                   .sinks = layer_->sinks,
                   .rows = active_rows(),
                   .n_heads = config().n_heads,
                   .d_head = config().d_head,
                   .dtype = dtype_},
                  stream_);
  }

  void project_output(ResidualAddition addition) override {
    if (config().has_attention_gate())
      cuda::apply_gate({.activation = Activation::sigmoid,
                        .gate_up = a_.attention_gate(),
                        .up = a_.z(),
                        .y = a_.z(),
                        .rows = active_rows(),
                        .n = a_.z_width(),
                        .dtype = dtype_},
                       stream_);
    updates_.add_product(
        {.x = a_.z(), .linear = layer_->o, .rows = active_rows()},
        {.running = active_rows(), .post_norm = layer_->post_attention_norm, .addition = addition});
  }

  void mix(std::span<const std::int64_t> state_rows) override {
    QKSCOPE_ASSERT(!rows_.has_dropped_rows());
    mixer_.mix(a_.normalized(), layer_->mixer, layer_number_, state_rows);
  }
  ConstTensorView mixer_states() override {
    copies_.deliver_copies();  // observers see activations in the order of the pass
    return mixer_.states();
  }
  void project_mixer_output(ResidualAddition addition) override {
    updates_.add_product(
        {.x = mixer_.take_output(), .linear = layer_->mixer.output, .rows = active_rows()},
        {.running = active_rows(), .post_norm = {}, .addition = addition});
  }

  void add_update_to_residual() override { updates_.add_deferred_update(active_rows()); }

  void project_router() override {
    mixture_.project_router(a_.normalized(), active_rows(), layer_->router);
  }

  void choose_experts() override { mixture_.choose_experts(active_rows(), layer_->selection_bias); }

  std::int64_t mlp_chunk_rows() const override {
    return layer_config_.experts ? cuda_expert_chunk_rows(config()) : kCudaMlpRows;
  }

  // Defers the gate/up product where the gated product kernel can apply the gate in its epilogue.
  void project_gate_up(std::int64_t begin, std::int64_t count) override {
    if (layer_config_.experts)
      return mixture_.project_gate_up(a_.normalized(), begin, count, layer_->experts_gate_up);
    a_.begin_mlp_chunk(count);
    if (has_gated_product_) {
      pending_.gate_up = a_.normalized(begin);
      return;
    }
    products_.multiply({.x = a_.normalized(begin),
                        .linear = layer_->gate_up,
                        .y = a_.reserve_gate_up(),
                        .rows = count});
  }

  void apply_gate(std::int64_t count) override {
    if (layer_config_.experts) return mixture_.apply_gate();
    if (const void* x = std::exchange(pending_.gate_up, nullptr); x != nullptr)
      return multiply_gated(x, a_.reserve_gated(), count, /*apart=*/false);
    cuda::apply_gate({.activation = config().activation,
                      .xielu = model().weights.layers[as_index(layer_number_)].xielu,
                      .gated = config().gated_mlp(),
                      .gate_up = a_.gate_up(),
                      .y = a_.reserve_gated(),
                      .rows = count,
                      .n = config().d_mlp,
                      .dtype = dtype_},
                     stream_);
  }

  void project_down(std::int64_t begin, std::int64_t count, ResidualAddition addition) override {
    const UpdateTarget target{.begin = begin,
                              .running = active_rows(),
                              .post_norm = layer_->post_mlp_norm,
                              .addition = addition};
    if (layer_config_.experts) {
      a_.reserve_update(active_rows());
      mixture_.project_down(layer_->experts_down, a_.residual_update(begin));
      if (config().experts.shared_d_mlp > 0)
        mixture_.add_shared_expert(a_.normalized(begin), *layer_, a_.residual_update(begin));
      return updates_.add_computed_update(count, target);
    }
    updates_.add_product({.x = a_.gated(), .linear = layer_->down, .rows = count}, target);
  }

  void project_logits() override {
    const auto rows = active_rows();
    void* logits = a_.reserve_logits(rows);
    products_.multiply({.x = a_.normalized(),
                        .linear = weights_.output_head(),
                        .y = logits,
                        .rows = rows,
                        .factor = static_cast<float>(config().logit_scale)});
    if (config().logit_softcap > 0.0)
      soft_cap(logits, rows * config().vocab_size, static_cast<float>(config().logit_softcap),
               dtype_, stream_);
  }

  void keep_rows(std::span<const std::int64_t> rows) override {
    apply_pending();
    rows_.keep_rows(rows);
    const auto count = active_rows();
    const auto take = [&](const void* from, std::int64_t stride, void* to, std::int64_t n) {
      copy_rows({.x = from,
                 .x_stride = stride,
                 .x_rows = rows_.kept_rows(),
                 .y = to,
                 .y_stride = n,
                 .count = count,
                 .n = n,
                 .dtype = dtype_},
                stream_);
    };
    const auto width = config().d_model;
    const void* residual = a_.residual();
    const void* gate = a_.attention_gate();
    a_.switch_to_kept_rows(count);
    take(residual, width, a_.residual(), width);
    take(a_.qkv(), a_.qkv_width(), a_.queries(), a_.q_width());
    if (config().has_attention_gate()) take(gate, a_.q_width(), a_.attention_gate(), a_.q_width());
    mixer_.keep_rows(rows_.kept_rows(), count);
    if (const void* input = a_.layer_input(); input != nullptr)
      take(input, width, a_.reserve_kept_layer_input(count), width);
  }

  std::int64_t active_rows() const override { return rows_.count(); }

  void read_buffer(ActivationBuffer buffer, const Selection& selection, Show show) override {
    apply_pending_for(buffer);
    copies_.copy_to_host(view(buffer), indices_of(selection), std::move(show));
  }

  void edit_buffer(ActivationBuffer buffer,
                   const std::function<void(TensorView)>& change) override {
    apply_pending_for(buffer);
    copies_.deliver_copies();
    const auto whole = view(buffer);
    const auto before = copies_.fetch(whole);
    Tensor values(before.shape());
    std::memcpy(values.view().bytes(), before.view().bytes(), before.view().size_bytes());
    change(values);
    if (std::memcmp(values.view().bytes(), before.view().bytes(), before.view().size_bytes()) == 0)
      return;
    copies_.put(values, whole);
    mark_edited(buffer);
  }

  ActivationCopy copy_buffer(ActivationBuffer buffer, const Selection& selection) override {
    apply_pending_for(buffer);
    Shape shape;
    auto memory = copies_.copy_on_device(view(buffer), indices_of(selection), shape);
    const TensorView copied(static_cast<std::byte*>(memory.get()), DType::f32, shape,
                            {Device::Kind::cuda, device_});
    return {std::move(memory), copied};
  }

  void put_buffer(ActivationBuffer buffer, const ActivationCopy& values) override {
    apply_pending_for(buffer);
    if (copies_.put(values.view.data<float>(), view(buffer))) mark_edited(buffer);
  }

  void score_rows(const RowScores& out) override {
    apply_pending();
    append_to_cache();
    copies_.deliver_copies();
    if (!out.edited) return copy_scores_to_host(out, score_source(), rows_, stream_);
    edited_heads_ = fetch_heads();
    qkscope::score_rows(host_input(edited_heads_), out.rows, out.scores, out.pattern);
  }

  void recompute_pattern(const RowScores& edited) override {
    qkscope::recompute_pattern(host_input(edited_heads_), edited.rows, edited.scores,
                               edited.pattern);
  }

  void attend_edited_rows(const RowScores& edited) override {
    const auto z = view(ActivationBuffer::z);
    auto values = copies_.fetch(z);
    qkscope::attend_edited_rows(host_input(edited_heads_), edited.rows, edited.scores,
                                edited.pattern, values);
    copies_.put(values, z);
    edited_heads_ = {};
  }

  void add_moments(ActivationBuffer buffer, const MomentRequest& request,
                   MomentConsumer& sink) override {
    QKSCOPE_ASSERT(!rows_.has_dropped_rows());
    apply_pending_for(buffer);
    moments_.add(view(buffer), request, sink);
  }

  void keep_row_sums(bool keep) override { keeps_row_sums_ = keep; }

  void add_attention_statistics(const AttentionRequest& request, AttentionConsumer& sink) override {
    QKSCOPE_ASSERT(keeps_row_sums_ && !rows_.has_dropped_rows());
    if (request.replacements.empty() && request.kept.empty() && layer_config_.chunk == 0)
      return scores_.add(score_source(), request, sink);
    // The host computes the statistics of chunked attention and the KL divergences of quantised or
    // evicted keys.
    apply_pending();
    results_.deliver_all();
    const auto heads = fetch_heads();
    const auto row_sums = scores_.fetch_row_sums(score_source());
    sink.add(compute_attention_statistics({host_input(heads), row_sums, batch_->ids}, request));
  }

  void finish_pass() override {
    copies_.deliver_copies();
    results_.deliver_all();
    check(cudaStreamSynchronize(stream_), "finish the forward pass");
    if (store_ != nullptr && store_->recurrent() != nullptr)
      store_->recurrent()->commit(batch_->sequences);
  }

  std::string describe_hardware() const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device_), "ask for the GPU's name");
    return properties.name;
  }

  void wait() override { check(cudaStreamSynchronize(stream_), "wait for the GPU"); }
  std::string attention_kernel() const override { return attention_kernel_; }

  double measure_flop_rate(double seconds) override {
    use_device(device_);
    weights_.wait();  // wait: both compete for PCIe bandwidth and device memory
    return products_.measure_flop_rate(seconds);
  }

 private:
  // Plans FlashInfer's or cuDNN's attention. Passes with a KV cache use the built-in kernel. In
  // chunked attention, each chunk is treated as a separate sequence.
  void begin_attention(std::span<const Sequence> sequences) {
    if (!hopper_attention_.has_kernel()) return cudnn_attention_->set_sequences(sequences);
    hopper_attention_.set_sequences(sequences);
    const auto chunked =
        std::ranges::find_if(config().layers, [](const auto& layer) { return layer.chunk > 0; });
    if (chunked == config().layers.end()) return;
    std::vector<Sequence> chunks;
    for (const auto& sequence : sequences)
      for (std::int64_t begin = 0; begin < sequence.length; begin += chunked->chunk)
        chunks.push_back(
            {sequence.begin + begin, std::min(chunked->chunk, sequence.length - begin)});
    hopper_chunks_.set_sequences(chunks);
  }

  void multiply_rows(const void* x, const DeviceLinear& linear, void* y,
                     std::int64_t y_stride = 0) {
    products_.multiply(
        {.x = x, .linear = linear, .y = y, .rows = active_rows(), .y_stride = y_stride});
  }

  // Normalises the active rows; sets the members of `a` that are the same for all norms.
  void normalize_active_rows(NormArguments a, double eps) {
    a.rows = active_rows();
    a.eps = static_cast<float>(eps);
    a.dtype = dtype_;
    normalize_rows(a, stream_);
  }
  // Normalises each row of x (active rows, width) in place.
  void normalize_latent(void* x, const DeviceNorm& norm, std::int64_t width) {
    normalize_active_rows({.x = x, .norm = norm, .y = x, .n = width}, config().latent.norm_eps);
  }

  void project_from_latents(bool values) {
    const auto& latent = layer_->latent;
    const auto shared = a_.rotated_key_width();
    multiply_rows(config().latent.q_rank > 0 ? a_.q_latent() : a_.normalized(), layer_->qkv,
                  a_.qkv(), a_.qkv_width());
    multiply_rows(a_.kv_latent(), latent.k, a_.unrotated_keys());
    if (values) multiply_rows(a_.kv_latent(), latent.v, a_.v(), a_.qkv_width());
    join_latent_keys({.own = a_.unrotated_keys(),
                      .shared = a_.rotated_key(),
                      .k = a_.k(),
                      .k_stride = a_.qkv_width(),
                      .rows = active_rows(),
                      .heads = config().n_heads,
                      .own_width = config().d_head - shared,
                      .shared_width = shared,
                      .dtype = dtype_},
                     stream_);
  }

  float scale() const { return static_cast<float>(config().score_scale(layer_number_)); }
  float softcap() const { return static_cast<float>(config().attention_softcap); }
  DeviceView view(ActivationBuffer buffer) const {
    const bool wide = buffer == ActivationBuffer::gate || buffer == ActivationBuffer::up;
    const bool routed = buffer == ActivationBuffer::router_logits ||
                        buffer == ActivationBuffer::expert_weights ||
                        buffer == ActivationBuffer::expert_indices;
    return routed || (wide && layer_config_.experts) ? mixture_.view(buffer, active_rows())
                                                     : a_.view(buffer, active_rows());
  }

  SelectedIndices indices_of(const Selection& selection) const {
    SelectedIndices selected;
    for (const auto row : selection.rows) selected.rows.push_back(rows_.kept_row_index(row));
    selected.heads.assign(selection.heads.begin(), selection.heads.end());
    selected.native_type = selection.native_type;
    return selected;
  }

  void apply_pending() {
    const bool rotates = pending_.rotation && layer_config_.rope >= 0;
    const bool scales = pending_.rotation && config().query_scaling.has_value() &&
                        !(config().query_scaling->without_rope && rotates);
    const bool norm_last = rotates && config().rotated_qk_norm;
    const bool norms = pending_.norm || norm_last;
    if (norms || rotates || scales)
      normalize_and_rotate({.q = a_.qkv(),
                            .k = a_.k(),
                            .row_stride = a_.qkv_width(),
                            .rows = active_rows(),
                            .n_heads = config().n_heads,
                            .n_kv_heads = config().n_kv_heads,
                            .d_head = config().d_head,
                            .q_norm = norms ? layer_->q_norm.weight : nullptr,
                            .k_norm = norms ? layer_->k_norm.weight : nullptr,
                            .eps = static_cast<float>(config().norm_eps),
                            .rotary = rows_.rotary(layer_config_.rope),
                            .rotate = rotates,
                            .norm_last = norm_last,
                            .interleaved = config().rope_interleaved,
                            .sorts_pairs = config().rope_sorts_pairs,
                            .query_scale = scales ? rows_.query_scale() : nullptr,
                            .dtype = dtype_},
                           stream_);
    pending_.norm = pending_.rotation = false;
  }

  void mark_edited(ActivationBuffer buffer) {
    if (buffer == ActivationBuffer::update) updates_.mark_update_edited();
    if (buffer == ActivationBuffer::expert_indices) mixture_.mark_indices_edited();
  }

  void apply_pending_for(ActivationBuffer buffer) {
    if (buffer == ActivationBuffer::q || buffer == ActivationBuffer::k) apply_pending();
    if (buffer == ActivationBuffer::gate || buffer == ActivationBuffer::up)
      layer_config_.experts ? mixture_.arrange_for_observer() : compute_gate_up();
  }

  // Computes gate and up separately; the values are bit-identical to those of the fused gated
  // product.
  void compute_gate_up() {
    if (const void* x = std::exchange(pending_.gate_up, nullptr); x != nullptr)
      multiply_gated(x, a_.reserve_gate_up(), a_.mlp_rows(), /*apart=*/true);
  }

  void multiply_gated(const void* x, void* y, std::int64_t rows, bool apart) {
    cuda::multiply_gated({.x = x,
                          .weight = layer_->gate_up.weight,
                          .y = y,
                          .rows = rows,
                          .in = config().d_model,
                          .n = config().d_mlp,
                          .apart = apart,
                          .bf16 = dtype_ == DType::bf16,
                          .device = device_},
                         stream_);
  }

  void attend_with_own_kernel(const SoftmaxRowSums& row_sums) {
    attention_kernel_ = dtype_ == DType::f32 ? "our own" : "our own (mma.sync)";
    const auto keys = rows_.visible_keys(layer_config_.window, layer_config_.chunk);
    attention({.q = a_.queries(),
               .k = key_rows(),
               .v = continues_ ? store_->v(layer_number_) : a_.v(),
               .z = a_.z(),
               .q_stride = a_.query_stride(),
               .k_stride = key_stride(),
               .v_stride = key_stride(),
               .z_stride = a_.z_width(),
               .first_key = keys.first,
               .last_key = keys.last,
               .sequence_begin = keys.begin,
               .queries = active_rows(),
               .n_heads = config().n_heads,
               .n_kv_heads = config().n_kv_heads,
               .d_head = config().d_head,
               .d_value = config().d_value(),
               .scale = scale(),
               .softcap = softcap(),
               .dtype = dtype_,
               .row_sums = row_sums},
              stream_);
  }

  // Writes the norm of x to y, both (active rows, d_model); x and y may alias.
  void normalize_residual(const void* x, const DeviceNorm& norm, void* y) {
    normalize_active_rows(
        {.x = x, .norm = norm, .kind = config().norm, .y = y, .n = config().d_model},
        config().norm_eps);
  }

  QueriesAndKeys score_source() const {
    return {.q = a_.qkv(),
            .k = key_rows(),
            .row_stride = a_.qkv_width(),
            .k_stride = key_stride(),
            .n_heads = config().n_heads,
            .n_kv_heads = config().n_kv_heads,
            .d_head = config().d_head,
            .scale = scale(),
            .softcap = softcap(),
            .window = layer_config_.window,
            .chunk = layer_config_.chunk,
            .dtype = dtype_,
            .sinks = layer_->sinks};
  }

  const void* key_rows() const { return continues_ ? store_->k(layer_number_) : a_.k(); }
  std::int64_t key_stride() const { return continues_ ? store_->row_stride() : a_.qkv_width(); }

  // Appends the keys and values of the current layer to the KV cache, once per layer and pass.
  void append_to_cache() {
    if (store_ == nullptr || keys_kept_) return;
    copy_rows({.x = a_.k(),
               .x_stride = a_.qkv_width(),
               .y = store_->k(layer_number_),
               .y_stride = store_->row_stride(),
               .y_rows = stored_rows_.as<std::int32_t>(),
               .count = batch_->rows(),
               .n = a_.k_width() + a_.v_width(),
               .dtype = dtype_},
              stream_);
    keys_kept_ = true;
  }

  // Copies the keys or values of all positions to the host, sequence by sequence.
  Tensor fetch_cached(bool keys) {
    if (!continues_) return copies_.fetch(view(keys ? ActivationBuffer::k : ActivationBuffer::v));
    std::int64_t rows = 0;
    for (const auto& sequence : batch_->sequences) rows += sequence.end();
    Tensor all({rows, config().n_kv_heads, keys ? config().d_head : config().d_value()});
    auto* to = all.view().bytes();
    for (const auto& sequence : batch_->sequences) {
      const auto part = copies_.fetch(store_->sequence_view(layer_number_, keys, sequence));
      std::memcpy(to, part.view().bytes(), part.view().size_bytes());
      to += part.view().size_bytes();
    }
    return all;
  }

  // q, k and v of one layer on the host, for edited scores and for statistics that have no CUDA
  // kernel.
  struct HostHeads {
    Tensor q;  // (rows, n_heads, d_head)
    Tensor k;  // (rows, n_kv_heads, d_head)
    Tensor v;  // (rows, n_kv_heads, d_value)
  };
  HostHeads fetch_heads() {
    return {copies_.fetch(view(ActivationBuffer::q)), fetch_cached(true), fetch_cached(false)};
  }
  AttentionInput host_input(const HostHeads& heads) const {
    return {.q = heads.q,
            .k = heads.k,
            .v = heads.v,
            .sequences = batch_->sequences,
            .scale = scale(),
            .window = layer_config_.window,
            .chunk = layer_config_.chunk,
            .softcap = softcap(),
            .sinks = model().weights.layers[as_index(layer_number_)].sinks};
  }

  struct Pending {
    bool norm = false;
    bool rotation = false;
    const void* gate_up = nullptr;  // input rows of the pending product
  };

  DType dtype_;
  int device_;
  int capability_;  // 90: compute capability 9.0
  DeviceBudget budget_;
  Stream stream_;
  MatrixMultiplier products_;
  HopperAttention hopper_attention_;
  HopperAttention hopper_chunks_;                    // of layers with chunked attention
  std::unique_ptr<CudnnAttention> cudnn_attention_;  // used where hopper_attention_ has no kernel
  bool has_gated_product_;
  DeviceWeights weights_;
  ActiveRows rows_;
  ActivationCopier copies_;
  Activations a_;
  ResidualUpdates updates_;
  ExpertMixture mixture_;
  RecurrentMixer mixer_;
  HostTransfers results_;  // statistics in flight to the host
  MomentStatistics moments_;
  ScoreStatistics scores_;
  bool keeps_row_sums_ = false;
  CudaKeyValueStore* store_ = nullptr;  // KV cache of the pass, or null
  UploadBuffer stored_rows_;            // (rows of the batch) their rows in the cache
  bool continues_ = false;              // some sequence continues a cached one
  bool keys_kept_ = false;              // keys of this layer are in the cache

  const Batch* batch_ = nullptr;
  const DeviceLayer* layer_ = nullptr;
  std::int64_t layer_number_ = 0;
  LayerConfig layer_config_;
  Pending pending_;
  const char* attention_kernel_ = "none";
  HostHeads edited_heads_;  // set while the scores of a layer are edited
};

}  // namespace

std::unique_ptr<Backend> make_backend(const LoadedCheckpoint& model, const BackendOptions& options,
                                      const DeviceBudget& budget) {
  return std::make_unique<CudaBackend>(model, options, budget);
}

}  // namespace qkscope::cuda
