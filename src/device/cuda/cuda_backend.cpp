#include "device/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "device/cuda/activation_copies.h"
#include "device/cuda/activations.h"
#include "device/cuda/attention_kernel.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/device_weights.h"
#include "device/cuda/fused_attention.h"
#include "device/cuda/gate.h"
#include "device/cuda/heads.h"
#include "device/cuda/hopper_attention.h"
#include "device/cuda/norm.h"
#include "device/cuda/pass_rows.h"
#include "device/cuda/product_rate.h"
#include "device/cuda/products.h"
#include "device/cuda/residual_updates.h"
#include "device/cuda/row_kernels.h"
#include "device/cuda/score_rows.h"

namespace qkscope::cuda {
namespace {

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
        budget_(budget),
        products_(dtype_, stream_),
        hopper_attention_(model.config, dtype_, device_, stream_),
        fused_attention_(hopper_attention_.serves() ? nullptr
                                                    : std::make_unique<FusedAttention>(
                                                          model.config, dtype_, device_, stream_)),
        weights_(model, dtype_, device_, budget_.streams()),
        rows_(model.config, dtype_, stream_),
        copies_(stream_),
        a_(model.config, dtype_),
        updates_(model.config, dtype_, products_, a_, stream_) {}

  void begin(const Batch& batch) override {
    use_device(device_);
    copies_.drop_all();
    pending_ = {};
    updates_.begin();
    batch_ = &batch;
    budget_.check_rows(batch.rows());
    rows_.begin(batch);
    if (hopper_attention_.serves())
      hopper_attention_.begin(batch.sequences);
    else
      fused_attention_->begin(batch.sequences);
    a_.begin(batch.rows());
  }

  void embed() override {
    cuda::embed({.table = weights_.embedding(),
                 .ids = rows_.ids(),
                 .y = a_.residual(),
                 .count = batch_->rows(),
                 .n = config().d_model,
                 .scale = static_cast<float>(config().embedding_scale),
                 .dtype = dtype_},
                stream_);
  }

  void begin_layer(std::int64_t layer) override {
    layer_ = &weights_.layer(layer, stream_);
    layer_config_ = config().layers[static_cast<std::size_t>(layer)];
  }

  void normalize(Norm which) override {
    norm({.x = a_.residual(),
          .weight = which == Norm::before_attention ? layer_->input_norm
                    : which == Norm::before_mlp     ? layer_->mlp_norm
                                                    : weights_.final_norm(),
          .y = a_.normalized(),
          .rows = running_rows(),
          .n = config().d_model,
          .eps = static_cast<float>(config().norm_eps),
          .dtype = dtype_},
         stream_);
  }

  void project_qkv(bool values) override {
    a_.begin_projection();
    products_.multiply({.x = a_.normalized(),
                        .x_stride = config().d_model,
                        .weight = layer_->qkv.weight,
                        .bias = layer_->qkv.bias,
                        .y = a_.qkv(),
                        .y_stride = a_.qkv_width(),
                        .rows = running_rows(),
                        .in = config().d_model,
                        .out = a_.qkv_width() - (values ? 0 : a_.kv_width())});
  }

  // Norm and rotation wait until q and k are shown or attention needs them: then they are one
  // kernel.
  void normalize_heads() override { pending_.norm = true; }
  void rotate() override { pending_.rotation = true; }

  void attend() override {
    finish_pending();
    const FusedAttentionArguments arguments{
        .q = a_.qkv(), .k = a_.k(), .v = a_.v(), .z = a_.z(), .window = layer_config_.window};
    if (rows_.narrowed()) {
      attend_with_own_kernel();
    } else if (hopper_attention_.serves()) {
      hopper_attention_.attend(arguments);
      attention_kernel_ = "FlashInfer (Hopper)";
    } else if (fused_attention_->attend(arguments)) {
      attention_kernel_ = "cuDNN";
    } else {
      attend_with_own_kernel();
    }
  }

  void project_output(Addition addition) override {
    updates_.add_product({.x = a_.z(),
                          .x_stride = a_.q_width(),
                          .weight = layer_->o.weight,
                          .bias = layer_->o.bias,
                          .rows = running_rows(),
                          .in = a_.q_width(),
                          .out = config().d_model},
                         {.running = running_rows(),
                          .post_norm = layer_->post_attention_norm,
                          .addition = addition});
  }

  void add_update() override { updates_.add_deferred(running_rows()); }

  std::int64_t mlp_rows() const override { return kCudaMlpRows; }

  void project_gate_up(std::int64_t begin, std::int64_t count) override {
    products_.multiply({.x = a_.normalized(begin),
                        .x_stride = config().d_model,
                        .weight = layer_->gate_up.weight,
                        .bias = layer_->gate_up.bias,
                        .y = a_.begin_mlp(count),
                        .y_stride = 2 * config().d_mlp,
                        .rows = count,
                        .in = config().d_model,
                        .out = 2 * config().d_mlp});
  }

  void gate(std::int64_t count) override {
    cuda::gate({.activation = config().activation,
                .gate_up = a_.gate_up(),
                .y = a_.begin_gate(),
                .rows = count,
                .n = config().d_mlp,
                .dtype = dtype_},
               stream_);
  }

  void project_down(std::int64_t begin, std::int64_t count, Addition addition) override {
    updates_.add_product({.x = a_.gated(),
                          .x_stride = config().d_mlp,
                          .weight = layer_->down.weight,
                          .bias = layer_->down.bias,
                          .rows = count,
                          .in = config().d_mlp,
                          .out = config().d_model},
                         {.begin = begin,
                          .running = running_rows(),
                          .post_norm = layer_->post_mlp_norm,
                          .addition = addition});
  }

  void project_logits() override {
    const auto rows = running_rows();
    void* logits = a_.begin_logits(rows);
    products_.multiply({.x = a_.normalized(),
                        .x_stride = config().d_model,
                        .weight = weights_.head(),
                        .y = logits,
                        .y_stride = config().vocab_size,
                        .rows = rows,
                        .in = config().d_model,
                        .out = config().vocab_size});
    if (config().logit_softcap > 0.0)
      soft_cap(logits, rows * config().vocab_size, static_cast<float>(config().logit_softcap),
               dtype_, stream_);
  }

  void keep_rows(std::span<const std::int64_t> rows) override {
    finish_pending();
    rows_.keep(rows);
    const auto count = running_rows();
    const void* residual = a_.residual();
    a_.begin_kept(count);
    take_rows({.x = residual,
               .row_stride = config().d_model,
               .rows = rows_.kept(),
               .y = a_.residual(),
               .count = count,
               .n = config().d_model,
               .dtype = dtype_},
              stream_);
    take_rows({.x = a_.qkv(),
               .row_stride = a_.qkv_width(),
               .rows = rows_.kept(),
               .y = a_.queries(),
               .count = count,
               .n = a_.q_width(),
               .dtype = dtype_},
              stream_);
  }

  std::int64_t running_rows() const override { return rows_.count(); }

  void read(Buffer buffer, const Selection& selection, Show show) override {
    finish_pending_of(buffer);
    const auto [rows, heads] = numbers_of(selection);
    copies_.copy_to_host(view(buffer), rows, heads, std::move(show));
  }

  void edit(Buffer buffer, const std::function<void(TensorView)>& change) override {
    finish_pending_of(buffer);
    copies_.show_all();
    const auto whole = view(buffer);
    const auto before = copies_.fetch(whole);
    Tensor values(before.shape());
    std::memcpy(values.view().bytes(), before.view().bytes(), before.view().size_bytes());
    change(values);
    if (std::memcmp(values.view().bytes(), before.view().bytes(), before.view().size_bytes()) == 0)
      return;
    copies_.put(values, whole);
    if (buffer == Buffer::update) updates_.mark_edited();
  }

  ActivationCopy copy(Buffer buffer, const Selection& selection) override {
    finish_pending_of(buffer);
    const auto [rows, heads] = numbers_of(selection);
    Shape shape;
    auto memory = copies_.copy_on_device(view(buffer), rows, heads, shape);
    const TensorView copied(static_cast<std::byte*>(memory.get()), DType::f32, shape,
                            {Device::Kind::cuda, device_});
    return {std::move(memory), copied};
  }

  void put(Buffer buffer, const ActivationCopy& values) override {
    const bool changed = copies_.put(values.view.data<float>(), view(buffer));
    if (changed && buffer == Buffer::update) updates_.mark_edited();
  }

  void score_rows(const RowScores& out) override {
    finish_pending();
    copies_.show_all();
    if (!out.edited) return show_scores(out, score_source(), rows_, stream_);
    host_attention_.emplace(fetch_attention());
    host_attention_->score_rows(out);
  }

  void pattern_of_edited_scores(const RowScores& edited) override {
    host_attention_->pattern_of_edited_scores(edited);
  }

  void attend_edited_rows(const RowScores& edited) override {
    const auto z = view(Buffer::z);
    auto values = copies_.fetch(z);
    host_attention_->attend_edited_rows(edited, values);
    copies_.put(values, z);
    host_attention_.reset();
  }

  void finish() override {
    copies_.show_all();
    check(cudaStreamSynchronize(stream_), "finish the forward pass");
  }

  std::string hardware() const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device_), "ask for the GPU's name");
    return properties.name;
  }

  void wait() override { check(cudaStreamSynchronize(stream_), "wait for the GPU"); }
  std::string attention_kernel() const override { return attention_kernel_; }

  double product_rate(double seconds) override {
    use_device(device_);
    return cuda::product_rate(products_, dtype_, seconds, stream_);
  }

 private:
  float scale() const { return static_cast<float>(config().attention_scale); }
  DeviceView view(Buffer buffer) const { return a_.view(buffer, running_rows()); }

  struct Numbers {
    std::vector<std::int32_t> rows;
    std::vector<std::int32_t> heads;
  };
  Numbers numbers_of(const Selection& selection) const {
    Numbers numbers;
    for (const auto row : selection.rows) numbers.rows.push_back(rows_.number_of(row));
    numbers.heads.assign(selection.heads.begin(), selection.heads.end());
    return numbers;
  }

  void finish_pending() {
    const bool scales = pending_.rotation && config().query_scaling.has_value();
    const bool rotates = pending_.rotation && layer_config_.rope >= 0;
    if (pending_.norm || rotates || scales)
      finish_heads({.q = a_.qkv(),
                    .k = a_.k(),
                    .row_stride = a_.qkv_width(),
                    .rows = running_rows(),
                    .n_heads = config().n_heads,
                    .n_kv_heads = config().n_kv_heads,
                    .d_head = config().d_head,
                    .q_norm = pending_.norm ? layer_->q_norm : nullptr,
                    .k_norm = pending_.norm ? layer_->k_norm : nullptr,
                    .eps = static_cast<float>(config().norm_eps),
                    .rotary = rows_.rotary(layer_config_.rope),
                    .rotate = rotates,
                    .interleaved = config().rope_interleaved,
                    .query_scale = scales ? rows_.query_scale() : nullptr,
                    .dtype = dtype_},
                   stream_);
    pending_ = {};
  }

  void finish_pending_of(Buffer buffer) {
    if (buffer == Buffer::q || buffer == Buffer::k) finish_pending();
  }

  void attend_with_own_kernel() {
    attention_kernel_ = dtype_ == DType::f32 ? "our own" : "our own (mma.sync)";
    const auto keys = rows_.keys(layer_config_.window);
    attention({.q = a_.queries(),
               .k = a_.k(),
               .v = a_.v(),
               .z = a_.z(),
               .q_stride = a_.query_stride(),
               .k_stride = a_.qkv_width(),
               .v_stride = a_.qkv_width(),
               .z_stride = a_.q_width(),
               .first_key = keys.first,
               .last_key = keys.last,
               .sequence_begin = keys.begin,
               .queries = running_rows(),
               .n_heads = config().n_heads,
               .n_kv_heads = config().n_kv_heads,
               .d_head = config().d_head,
               .scale = scale(),
               .dtype = dtype_},
              stream_);
  }

  ScoreSource score_source() const {
    return {.q = a_.qkv(),
            .k = a_.k(),
            .row_stride = a_.qkv_width(),
            .n_heads = config().n_heads,
            .n_kv_heads = config().n_kv_heads,
            .d_head = config().d_head,
            .scale = scale(),
            .window = layer_config_.window,
            .dtype = dtype_};
  }

  HostAttention fetch_attention() {
    return {.q = copies_.fetch(view(Buffer::q)),
            .k = copies_.fetch(view(Buffer::k)),
            .v = copies_.fetch(view(Buffer::v)),
            .sequences = batch_->sequences,
            .scale = scale(),
            .window = layer_config_.window};
  }

  struct Pending {
    bool norm = false;
    bool rotation = false;
  };

  DType dtype_;
  int device_;
  DeviceBudget budget_;
  Stream stream_;
  Products products_;
  HopperAttention hopper_attention_;
  std::unique_ptr<FusedAttention> fused_attention_;  // where the one above has no kernel
  DeviceWeights weights_;
  PassRows rows_;
  ActivationCopies copies_;
  Activations a_;
  ResidualUpdates updates_;

  const Batch* batch_ = nullptr;
  const DeviceLayer* layer_ = nullptr;
  LayerConfig layer_config_;
  Pending pending_;
  const char* attention_kernel_ = "none";
  std::optional<HostAttention> host_attention_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(const LoadedCheckpoint& model, const BackendOptions& options,
                                      const DeviceBudget& budget) {
  return std::make_unique<CudaBackend>(model, options, budget);
}

}  // namespace qkscope::cuda
