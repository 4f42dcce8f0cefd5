#include <cstring>
#include <memory>
#include <utility>

#include "engine/device/backend.h"
#include "engine/device/cuda/attention/layer_attention.h"
#include "engine/device/cuda/memory/device_memory.h"
#include "engine/device/cuda/memory/device_weights.h"
#include "engine/device/cuda/mixer/recurrent_mixer.h"
#include "engine/device/cuda/pass_context.h"
#include "engine/device/cuda/products/mixture_of_experts.h"
#include "engine/device/cuda/products/products.h"
#include "engine/device/cuda/residual_updates.h"
#include "engine/device/cuda/statistics/moment_statistics.h"
#include "engine/device/cuda/statistics/score_statistics.h"
#include "engine/device/memory_plan.h"
#include "engine/ops/attention.h"

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
              const GpuMemoryBudget& budget)
      : Backend(model),
        dtype_(options.dtype),
        device_(use_device(options.device.index)),
        budget_(budget),
        products_(dtype_, stream_),
        rows_(model.config, dtype_, stream_),
        a_(model.config, dtype_),
        copies_(stream_),
        pass_{config(), dtype_, stream_, products_, rows_, a_, copies_},
        attention_(pass_, device_),
        uses_gated_gemm_(supports_gated_gemm(model.config, dtype_, device_)),
        weights_(model, {.dtype = dtype_,
                         .device = device_,
                         .streamed = budget_.needs_weight_streaming(),
                         .interleaves_gate_up = uses_gated_gemm_,
                         .interleaves_experts = supports_grouped_gemm(config(), dtype_, device_)}),
        heads_(pass_, attention_),
        layer_inputs_(pass_),
        updates_(pass_),
        mixture_(pass_, device_, supports_grouped_gemm(config(), dtype_, device_)),
        mixer_(model.config.mixer, dtype_, products_, stream_),
        statistics_transfers_(stream_, kMostStatisticsBytes),
        moments_(statistics_transfers_, stream_),
        scores_(statistics_transfers_, stream_) {}

  void begin_pass(const Batch& batch) override {
    use_device(device_);
    copies_.discard_copies();
    statistics_transfers_.discard_all();
    pending_gate_up_ = nullptr;
    heads_.begin_pass();
    updates_.discard_deferred_update();
    batch_ = &batch;
    keeps_row_sums_ = false;
    budget_.check_rows_fit(batch.rows());
    rows_.begin_pass(batch);
    attention_.begin_pass(batch);
    a_.begin_pass(batch.rows());
    mixer_.begin_pass(batch);
    moments_.begin_batch(batch);
    scores_.begin_batch(batch);
  }

  std::unique_ptr<KvCacheMemory> make_kv_cache(std::int64_t sequences,
                                               std::int64_t positions) override {
    use_device(device_);
    return std::make_unique<CudaKvCacheMemory>(config(), dtype_, budget_, sequences, positions);
  }

  void use_kv_cache(KvCacheMemory& store) override {
    attention_.use_kv_cache(static_cast<CudaKvCacheMemory&>(store));
    if (auto* states = attention_.kv_cache()->recurrent_states(); states != nullptr)
      mixer_.use_recurrent_states(*states);
  }

  void embed_tokens() override {
    pass_.embed({.table = weights_.non_layer().embedding.weight,
                 .ids = rows_.token_ids(),
                 .y = a_.residual(),
                 .count = batch_->rows(),
                 .n = config().d_model,
                 .scale = static_cast<float>(config().embedding_scale)});
    if (config().embedding_norm)
      normalize_residual(a_.residual(), weights_.non_layer().final_norm, a_.residual());
  }

  void embed_positions() override {
    a_.reserve_residual_update(batch_->rows());
    pass_.embed({.table = weights_.non_layer().positions.weight,
                 .ids = rows_.positions(),
                 .y = a_.residual_update(),
                 .count = batch_->rows(),
                 .n = config().d_model});
  }

  void embed_per_layer_inputs() override { layer_inputs_.embed_tokens(weights_.non_layer()); }

  void set_residual(ConstTensorView residual) override {
    const auto whole = view(ActivationBuffer::residual);
    const bool on_gpu = residual.device().kind == Device::Kind::cuda;
    on_gpu ? void(copies_.overwrite_activation(residual.data<float>(), whole))
           : copies_.overwrite_activation(residual, whole);
  }

  void begin_layer(std::int64_t layer) override {
    layer_ = &weights_.acquire_layer(layer, stream_);
    layer_number_ = layer;
    layer_config_ = config().layer(layer);
    a_.begin_layer(layer_config_);
    attention_.begin_layer(layer);
    heads_.begin_layer(*layer_);
  }

  void save_layer_input() override {
    const auto bytes = as_index(active_rows() * config().d_model) * dtype_size(dtype_);
    check(cudaMemcpyAsync(a_.reserve_layer_input(active_rows()), a_.residual(), bytes,
                          cudaMemcpyDeviceToDevice, stream_),
          "keep the layer's input");
  }

  void apply_norm(NormSite which) override {
    const bool beside = config().parallel_residual && which == NormSite::before_mlp;
    normalize_residual(beside ? a_.layer_input() : a_.residual(),
                       which == NormSite::before_attention ? layer_->input_norm
                       : which == NormSite::before_mlp     ? layer_->mlp_norm
                                                           : weights_.non_layer().final_norm,
                       a_.normalized());
  }

  void project_latents() override { heads_.project_latents(); }
  void project_qkv(bool values) override { heads_.project_qkv(values); }
  void apply_qk_norm() override { heads_.apply_qk_norm(); }
  void apply_rope() override { heads_.apply_rope(); }

  void compute_attention() override {
    heads_.apply_pending_norm_and_rope();
    SoftmaxRowStats row_stats;
    if (keeps_row_sums_ || config().has_sinks())
      row_stats = scores_.reserve_row_stats(config().n_heads);
    const auto kernel = attention_.attend(queries_and_keys(), row_stats);
    // A separate kernel, because requesting the log-sum-exp from cuDNN changes the last bits of z.
    if (keeps_row_sums_ && kernel == AttentionKernel::cudnn)
      scores_.compute_row_stats(queries_and_keys());
    if (config().has_sinks())
      apply_sinks({.z = a_.z(),
                   .lse = row_stats.lse,
                   .sinks = layer_->sinks,
                   .rows = active_rows(),
                   .n_heads = config().n_heads,
                   .d_head = config().d_head,
                   .dtype = dtype_},
                  stream_);
  }

  void project_output(ResidualAddMode addition) override {
    if (config().has_attention_gate())
      pass_.apply_gate({.activation = Activation::sigmoid,
                        .gate_up = a_.attention_gate(),
                        .up = a_.z(),
                        .y = a_.z(),
                        .rows = active_rows(),
                        .n = a_.z_width()});
    updates_.add_product(
        {.x = a_.z(), .linear = layer_->o, .rows = active_rows()},
        {.running = active_rows(), .post_norm = layer_->post_attention_norm, .addition = addition});
  }

  void run_recurrent_mixer(std::span<const std::int64_t> state_rows) override {
    QKSCOPE_ASSERT(!rows_.has_dropped_rows());
    mixer_.compute_output(a_.normalized(), layer_->mixer, layer_number_, state_rows);
  }
  ConstTensorView mixer_states() override {
    copies_.deliver_copies();  // observers see activations in the order of the pass
    return mixer_.states();
  }
  void project_mixer_output(ResidualAddMode addition) override {
    updates_.add_product(
        {.x = mixer_.consume_output(), .linear = layer_->mixer.output, .rows = active_rows()},
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

  // Defers the gate/up product to apply_mlp_activation() if one kernel can compute both steps.
  void project_gate_up(std::int64_t begin, std::int64_t count) override {
    if (layer_config_.experts)
      return mixture_.project_gate_up(a_.normalized(), begin, count, layer_->experts_gate_up);
    a_.begin_mlp_chunk(count);
    if (uses_gated_gemm_) {
      pending_gate_up_ = a_.normalized(begin);
      return;
    }
    products_.multiply({.x = a_.normalized(begin),
                        .linear = layer_->gate_up,
                        .y = a_.reserve_gate_up(),
                        .rows = count});
  }

  void apply_mlp_activation(std::int64_t count) override {
    if (layer_config_.experts) return mixture_.apply_gate();
    if (const void* x = std::exchange(pending_gate_up_, nullptr); x != nullptr)
      return run_gated_gemm(x, a_.reserve_gated_product(), count, /*apart=*/false);
    pass_.apply_gate({.activation = config().activation,
                      .xielu = model().weights.layers[as_index(layer_number_)].xielu,
                      .gated = config().gated_mlp(),
                      .gate_up = a_.gate_up(),
                      .y = a_.reserve_gated_product(),
                      .rows = count,
                      .n = a_.d_mlp()});
  }

  void project_down(std::int64_t begin, std::int64_t count, ResidualAddMode addition) override {
    const ResidualUpdateTarget target{.begin = begin,
                                      .running = active_rows(),
                                      .post_norm = layer_->post_mlp_norm,
                                      .addition = addition};
    if (layer_config_.experts) {
      a_.reserve_residual_update(active_rows());
      mixture_.project_down(layer_->experts_down, a_.residual_update(begin));
      if (config().experts.shared_d_mlp > 0)
        mixture_.add_shared_expert(a_.normalized(begin), *layer_, a_.residual_update(begin));
      return updates_.add_buffered_update(count, target);
    }
    updates_.add_product({.x = a_.gated_product(), .linear = layer_->down, .rows = count}, target);
  }

  void project_per_layer_input(ResidualAddMode addition) override {
    layer_inputs_.add_to_residual(*layer_, layer_number_, updates_, addition);
  }
  void scale_residual() override {
    convert_elements(a_.residual(), dtype_, a_.residual(), dtype_, active_rows() * config().d_model,
                     model().weights.layers[as_index(layer_number_)].scalar, stream_);
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

  void drop_rows_except(std::span<const std::int64_t> rows) override {
    heads_.apply_pending_norm_and_rope();
    rows_.keep_rows(rows);
    const auto count = active_rows();
    const auto take = [&](const void* from, std::int64_t stride, void* to, std::int64_t n) {
      pass_.copy_rows({.x = from,
                       .x_stride = stride,
                       .x_rows = rows_.kept_rows(),
                       .y = to,
                       .y_stride = n,
                       .count = count,
                       .n = n});
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

  void read_buffer(ActivationBuffer buffer, const Selection& selection,
                   HostTensorCallback show) override {
    apply_pending_steps(buffer);
    copies_.copy_to_host(view(buffer), select_active_rows(selection), std::move(show));
  }

  void edit_buffer(ActivationBuffer buffer,
                   const std::function<void(TensorView)>& change) override {
    apply_pending_steps(buffer);
    copies_.deliver_copies();
    const auto whole = view(buffer);
    const auto before = copies_.fetch_activation(whole);
    Tensor values(before.shape());
    std::memcpy(values.view().bytes(), before.view().bytes(), before.view().size_bytes());
    change(values);
    if (std::memcmp(values.view().bytes(), before.view().bytes(), before.view().size_bytes()) == 0)
      return;
    copies_.overwrite_activation(values, whole);
    mark_buffer_edited(buffer);
  }

  ActivationCopy copy_buffer(ActivationBuffer buffer, const Selection& selection) override {
    apply_pending_steps(buffer);
    Shape shape;
    auto memory = copies_.copy_on_device(view(buffer), select_active_rows(selection), shape);
    const TensorView copied(static_cast<std::byte*>(memory.get()), DType::f32, shape,
                            {Device::Kind::cuda, device_});
    return {std::move(memory), copied};
  }

  void overwrite_buffer(ActivationBuffer buffer, const ActivationCopy& values) override {
    apply_pending_steps(buffer);
    if (copies_.overwrite_activation(values.view.data<float>(), view(buffer)))
      mark_buffer_edited(buffer);
  }

  void compute_row_scores(const AttentionScores& out) override {
    heads_.apply_pending_norm_and_rope();
    attention_.store_keys_and_values();
    copies_.deliver_copies();
    if (!out.edited) return compute_and_copy_scores(out, queries_and_keys(), rows_, stream_);
    edited_heads_ = attention_.fetch_qkv();
    qkscope::compute_row_scores(host_attention_input(edited_heads_), out.rows, out.scores,
                                out.pattern);
  }

  void recompute_attention_pattern(const AttentionScores& edited) override {
    qkscope::recompute_attention_pattern(host_attention_input(edited_heads_), edited.rows,
                                         edited.scores, edited.pattern);
  }

  void recompute_edited_rows(const AttentionScores& edited) override {
    const auto z = view(ActivationBuffer::z);
    auto values = copies_.fetch_activation(z);
    qkscope::recompute_edited_rows(host_attention_input(edited_heads_), edited.rows, edited.scores,
                                   edited.pattern, values);
    copies_.overwrite_activation(values, z);
    edited_heads_ = {};
  }

  void add_moments(ActivationBuffer buffer, const MomentRequest& request,
                   MomentConsumer& sink) override {
    QKSCOPE_ASSERT(!rows_.has_dropped_rows());
    apply_pending_steps(buffer);
    moments_.add(view(buffer), request, sink);
  }

  void set_keep_softmax_sums(bool keep) override { keeps_row_sums_ = keep; }
  void add_attention_statistics(const AttentionRequest& request, AttentionConsumer& sink) override {
    QKSCOPE_ASSERT(keeps_row_sums_ && !rows_.has_dropped_rows());
    if (request.replacements.empty() && request.kept.empty() && layer_config_.chunk == 0)
      return scores_.add_layer(queries_and_keys(), request, sink);
    // The host computes the statistics if attention is chunked or keys are replaced or evicted.
    heads_.apply_pending_norm_and_rope();
    statistics_transfers_.deliver_all();
    const auto heads = attention_.fetch_qkv();
    const auto sums = scores_.fetch_running_softmax(queries_and_keys());
    sink.add(
        compute_attention_statistics({host_attention_input(heads), sums, batch_->ids}, request));
  }

  void finish_pass() override {
    copies_.deliver_copies();
    statistics_transfers_.deliver_all();
    check(cudaStreamSynchronize(stream_), "finish the forward pass");
    if (auto* store = attention_.kv_cache();
        store != nullptr && store->recurrent_states() != nullptr)
      store->recurrent_states()->commit(batch_->sequences);
  }

  std::string describe_hardware() const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device_), "ask for the GPU's name");
    return properties.name;
  }

  void wait_until_idle() override { check(cudaStreamSynchronize(stream_), "wait for the GPU"); }
  std::string attention_kernel_name() const override { return attention_.kernel_name(); }

  double measure_flop_rate(double seconds) override {
    use_device(device_);
    weights_.wait_for_uploads();  // uploads would slow the measured products down
    return products_.measure_flop_rate(seconds);
  }

 private:
  ActivationView view(ActivationBuffer buffer) const {
    if (buffer == ActivationBuffer::kv_latent) return heads_.kv_latent();
    const bool wide = buffer == ActivationBuffer::gate || buffer == ActivationBuffer::up;
    const bool routed =
        buffer >= ActivationBuffer::router_logits && buffer <= ActivationBuffer::expert_indices;
    return routed || (wide && layer_config_.experts) ? mixture_.view(buffer, active_rows())
                                                     : a_.view(buffer, active_rows());
  }

  RowHeadSelection select_active_rows(const Selection& selection) const {
    RowHeadSelection selected;
    for (const auto row : selection.rows) selected.rows.push_back(rows_.index_among_kept(row));
    selected.heads.assign(selection.heads.begin(), selection.heads.end());
    selected.native_type = selection.native_type;
    return selected;
  }

  void mark_buffer_edited(ActivationBuffer buffer) {
    if (buffer == ActivationBuffer::update) updates_.mark_update_edited();
    if (buffer == ActivationBuffer::expert_indices) mixture_.mark_routing_edited();
  }

  void apply_pending_steps(ActivationBuffer buffer) {
    if (buffer == ActivationBuffer::q || buffer == ActivationBuffer::k)
      heads_.apply_pending_norm_and_rope();
    if (buffer != ActivationBuffer::gate && buffer != ActivationBuffer::up) return;
    if (layer_config_.experts) return mixture_.restore_row_order();
    // Computes gate and up separately, bit-identical to the intermediate values of the fused GEMM.
    if (const void* x = std::exchange(pending_gate_up_, nullptr); x != nullptr)
      run_gated_gemm(x, a_.reserve_gate_up(), a_.mlp_chunk_rows(), /*apart=*/true);
  }

  void run_gated_gemm(const void* x, void* y, std::int64_t rows, bool apart) {
    cuda::run_gated_gemm({.x = x,
                          .weight = layer_->gate_up.weight,
                          .y = y,
                          .rows = rows,
                          .in = config().d_model,
                          .n = a_.d_mlp(),
                          .apart = apart,
                          .bf16 = dtype_ == DType::bf16,
                          .device = device_},
                         stream_);
  }

  // Writes the normalized rows of x to y, both (active rows, d_model); x and y may alias.
  void normalize_residual(const void* x, const DeviceNorm& norm, void* y) {
    pass_.normalize_rows(
        {.x = x, .norm = norm, .kind = config().norm, .y = y, .n = config().d_model},
        config().norm_eps);
  }

  QueriesAndKeys queries_and_keys() const { return attention_.queries_and_keys(layer_->sinks); }
  AttentionInput host_attention_input(const HostQkv& heads) const {
    return attention_.host_attention_input(heads,
                                           model().weights.layers[as_index(layer_number_)].sinks);
  }

  DType dtype_;
  int device_;
  GpuMemoryBudget budget_;
  GpuStream stream_;
  MatrixMultiplier products_;
  ActiveRows rows_;
  Activations a_;
  ActivationCopier copies_;
  PassContext pass_;
  LayerAttention attention_;
  bool uses_gated_gemm_;
  DeviceWeights weights_;
  QkvProjection heads_;
  PerLayerEmbeddings layer_inputs_;
  ResidualUpdates updates_;
  MixtureOfExperts mixture_;
  RecurrentMixer mixer_;
  HostTransfers statistics_transfers_;  // statistics in flight to the host
  MomentStatistics moments_;
  ScoreStatistics scores_;
  bool keeps_row_sums_ = false;

  const Batch* batch_ = nullptr;
  const DeviceLayer* layer_ = nullptr;
  std::int64_t layer_number_ = 0;
  LayerConfig layer_config_;
  const void* pending_gate_up_ = nullptr;  // input rows of a deferred gate/up product
  HostQkv edited_heads_;                   // set while the scores of a layer are edited
};

}  // namespace

std::unique_ptr<Backend> make_backend(const LoadedCheckpoint& model, const BackendOptions& options,
                                      const GpuMemoryBudget& budget) {
  return std::make_unique<CudaBackend>(model, options, budget);
}

}  // namespace qkscope::cuda
