#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "backend/cuda/attention_kernel.h"
#include "backend/cuda/budget.h"
#include "backend/cuda/device_weights.h"
#include "backend/cuda/fused_attention.h"
#include "backend/cuda/gate.h"
#include "backend/cuda/heads.h"
#include "backend/cuda/norm.h"
#include "backend/cuda/pass_rows.h"
#include "backend/cuda/products.h"
#include "backend/cuda/rows.h"
#include "backend/cuda/sights.h"
#include "backend/cuda/status.h"
#include "backend/cuda/viewed_scores.h"
#include "backend/memory.h"

namespace qkscope {
namespace cuda {
namespace {

int use_card(int card) {
  check(cudaSetDevice(card), "use the card");
  return card;
}

class CudaBackend : public Backend {
 public:
  CudaBackend(const Model& model, const BackendOptions& options)
      : Backend(model),
        dtype_(options.dtype),
        element_(static_cast<std::int64_t>(dtype_size(options.dtype))),
        card_(use_card(options.device.index)),
        q_width_(config().n_heads * config().d_head),
        kv_width_(config().n_kv_heads * config().d_head),
        budget_(model.config, options),
        products_(dtype_, stream_),
        attention_(stream_),
        weights_(model, dtype_, card_, budget_.streams()),
        rows_(model.config, dtype_, stream_),
        sights_(stream_) {}

  void begin(const Batch& batch) override {
    check(cudaSetDevice(card_), "use the card");
    sights_.forget();
    pending_ = {};
    held_.reset();
    batch_ = &batch;
    budget_.check_rows(batch.rows());
    rows_.begin(batch);
    attention_.begin(batch.segments);
    const auto rows = batch.rows();
    hidden_.reserve(rows * std::max(config().d_model, q_width_) * element_, "activations");
    qkv_.reserve(rows * qkv_width() * element_, "queries, keys and values");
    stream_of_residual_ = &residual_;
    queries_ = nullptr;
  }

  void embed() override {
    residual_.reserve(batch_->rows() * config().d_model * element_, "the residual stream");
    cuda::embed({.table = weights_.embedding(),
                 .ids = rows_.ids(),
                 .y = residual(),
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
    norm({.x = residual(),
          .weight = which == Norm::before_attention ? layer_->input_norm
                    : which == Norm::before_mlp     ? layer_->mlp_norm
                                                    : weights_.final_norm(),
          .y = hidden_.data(),
          .rows = running_rows(),
          .n = config().d_model,
          .eps = static_cast<float>(config().norm_eps),
          .dtype = dtype_},
         stream_);
  }

  void project_qkv(bool values) override {
    queries_ = nullptr;
    products_.multiply({.x = hidden_.data(),
                        .x_stride = config().d_model,
                        .weight = layer_->qkv.weight,
                        .bias = layer_->qkv.bias,
                        .y = qkv_.data(),
                        .y_stride = qkv_width(),
                        .rows = running_rows(),
                        .in = config().d_model,
                        .out = values ? qkv_width() : q_width_ + kv_width_});
  }

  // Norm and rotation wait until someone looks or attention needs them: then they are one pass.
  void normalize_heads() override { pending_.norm = true; }
  void rotate() override { pending_.rotation = true; }

  void attend() override {
    finish_pending();
    const bool fused = !rows_.narrowed() && attention_.attend({.q = at(qkv_, 0),
                                                               .k = at(qkv_, q_width_),
                                                               .v = at(qkv_, q_width_ + kv_width_),
                                                               .z = hidden_.data(),
                                                               .row_stride = qkv_width(),
                                                               .z_stride = q_width_,
                                                               .n_heads = config().n_heads,
                                                               .n_kv_heads = config().n_kv_heads,
                                                               .d_head = config().d_head,
                                                               .scale = scale(),
                                                               .window = layer_config_.window,
                                                               .dtype = dtype_});
    if (!fused) attend_with_own_kernel();
  }

  void project_output(Addition addition) override {
    add_product({.x = hidden_.data(),
                 .x_stride = q_width_,
                 .weight = layer_->o.weight,
                 .bias = layer_->o.bias,
                 .rows = running_rows(),
                 .in = q_width_,
                 .out = config().d_model},
                0, layer_->post_attention_norm, addition);
  }

  // An update that nobody changed is added as if nobody had looked.
  void add_update() override {
    if (held_ && !held_->changed && held_->straight)
      add_straight(held_->product, 0);
    else
      add_rows(0, running_rows(), nullptr, true);
    held_.reset();
  }

  std::int64_t mlp_rows() const override { return kCudaMlpRows; }

  void project_gate_up(std::int64_t begin, std::int64_t count) override {
    gate_up_.reserve(count * 2 * config().d_mlp * element_, "the MLP");
    mlp_count_ = count;
    gated_rows_ = 0;
    products_.multiply({.x = at(hidden_, begin * config().d_model),
                        .x_stride = config().d_model,
                        .weight = layer_->gate_up.weight,
                        .bias = layer_->gate_up.bias,
                        .y = gate_up_.data(),
                        .y_stride = 2 * config().d_mlp,
                        .rows = count,
                        .in = config().d_model,
                        .out = 2 * config().d_mlp});
  }

  void gate(std::int64_t count) override {
    gated_rows_ = count;
    cuda::gate({.activation = config().activation,
                .gate_up = gate_up_.data(),
                .y = gated_.reserve(count * config().d_mlp * element_, "the MLP"),
                .rows = count,
                .n = config().d_mlp,
                .dtype = dtype_},
               stream_);
  }

  void project_down(std::int64_t begin, std::int64_t count, Addition addition) override {
    add_product({.x = gated_.data(),
                 .x_stride = config().d_mlp,
                 .weight = layer_->down.weight,
                 .bias = layer_->down.bias,
                 .rows = count,
                 .in = config().d_mlp,
                 .out = config().d_model},
                begin, layer_->post_mlp_norm, addition);
  }

  void project_logits() override {
    const auto rows = running_rows();
    logits_.reserve(rows * config().vocab_size * element_, "logits");
    products_.multiply({.x = hidden_.data(),
                        .x_stride = config().d_model,
                        .weight = weights_.head(),
                        .y = logits_.data(),
                        .y_stride = config().vocab_size,
                        .rows = rows,
                        .in = config().d_model,
                        .out = config().vocab_size});
    if (config().logit_softcap > 0.0)
      soft_cap(logits_.data(), rows * config().vocab_size,
               static_cast<float>(config().logit_softcap), dtype_, stream_);
  }

  void keep_rows(std::span<const std::int64_t> rows) override {
    finish_pending();
    rows_.keep(rows);
    const auto count = running_rows();
    take_rows({.x = residual(),
               .row_stride = config().d_model,
               .rows = rows_.kept(),
               .y = kept_residual_.reserve(count * config().d_model * element_, "kept rows"),
               .count = count,
               .n = config().d_model,
               .dtype = dtype_},
              stream_);
    take_rows({.x = qkv_.data(),
               .row_stride = qkv_width(),
               .rows = rows_.kept(),
               .y = kept_queries_.reserve(count * q_width_ * element_, "kept queries"),
               .count = count,
               .n = q_width_,
               .dtype = dtype_},
              stream_);
    stream_of_residual_ = &kept_residual_;
    queries_ = kept_queries_.data();
  }

  std::int64_t running_rows() const override { return rows_.count(); }

  void read(Buffer buffer, const Choice& choice, Show show) override {
    finish_pending_of(buffer);
    const auto [rows, heads] = numbers_of(choice);
    sights_.look(view(buffer), rows, heads, std::move(show));
  }

  void edit(Buffer buffer, const std::function<void(TensorView)>& change) override {
    finish_pending_of(buffer);
    sights_.show_all();
    const auto whole = view(buffer);
    const auto before = sights_.fetch(whole);
    const Tensor values(before.shape());
    std::memcpy(values.view().bytes(), before.view().bytes(), before.view().size_bytes());
    change(values);
    if (std::memcmp(values.view().bytes(), before.view().bytes(), before.view().size_bytes()) == 0)
      return;
    sights_.put(values, whole);
    if (buffer == Buffer::update && held_) held_->changed = true;
  }

  HeldTensor copy(Buffer buffer, const Choice& choice) override {
    finish_pending_of(buffer);
    const auto [rows, heads] = numbers_of(choice);
    Shape shape;
    auto memory = sights_.copy(view(buffer), rows, heads, shape);
    const TensorView held(static_cast<std::byte*>(memory.get()), DType::f32, shape,
                          {Device::Kind::cuda, card_});
    return {std::move(memory), held};
  }

  void put(Buffer buffer, const HeldTensor& values) override {
    const bool changed = sights_.put(values.view.data<float>(), view(buffer));
    if (changed && buffer == Buffer::update && held_) held_->changed = true;
  }

  void score_rows(const RowScores& out) override {
    finish_pending();
    sights_.show_all();
    if (!out.edited) return view_scores(out, score_source(), rows_, stream_);
    edited_.emplace(fetch_attention());
    edited_->score_rows(out);
  }

  void pattern_of_edited_scores(const RowScores& edited) override {
    edited_->pattern_of_edited_scores(edited);
  }

  void attend_edited_rows(const RowScores& edited) override {
    const auto z = view(Buffer::z);
    const auto values = sights_.fetch(z);
    edited_->attend_edited_rows(edited, values);
    sights_.put(values, z);
    edited_.reset();
  }

  void finish() override {
    sights_.show_all();
    check(cudaStreamSynchronize(stream_), "finish the forward pass");
  }

 private:
  std::int64_t qkv_width() const { return q_width_ + 2 * kv_width_; }
  float scale() const { return static_cast<float>(config().attention_scale); }
  void* residual() const { return stream_of_residual_->data(); }
  void* at(const DeviceBlock& block, std::int64_t element) const {
    return block.as<std::byte>() + element * element_;
  }

  struct Numbers {
    std::vector<std::int32_t> rows;
    std::vector<std::int32_t> heads;
  };
  Numbers numbers_of(const Choice& choice) const {
    Numbers numbers;
    for (const auto row : choice.rows) numbers.rows.push_back(rows_.number_of(row));
    numbers.heads.assign(choice.heads.begin(), choice.heads.end());
    return numbers;
  }

  void finish_pending() {
    const bool scales = pending_.rotation && config().query_scaling.has_value();
    const bool rotates = pending_.rotation && layer_config_.rope >= 0;
    if (pending_.norm || rotates || scales)
      finish_heads({.q = at(qkv_, 0),
                    .k = at(qkv_, q_width_),
                    .row_stride = qkv_width(),
                    .rows = running_rows(),
                    .n_heads = config().n_heads,
                    .n_kv_heads = config().n_kv_heads,
                    .d_head = config().d_head,
                    .q_norm = pending_.norm ? layer_->q_norm : nullptr,
                    .k_norm = pending_.norm ? layer_->k_norm : nullptr,
                    .eps = static_cast<float>(config().norm_eps),
                    .rotary = rotates ? rows_.rotary(layer_config_.rope) : RotaryView{},
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
    const auto keys = rows_.keys(layer_config_.window);
    attention({.q = queries_ != nullptr ? queries_ : qkv_.data(),
               .k = at(qkv_, q_width_),
               .v = at(qkv_, q_width_ + kv_width_),
               .z = hidden_.data(),
               .q_stride = queries_ != nullptr ? q_width_ : qkv_width(),
               .k_stride = qkv_width(),
               .v_stride = qkv_width(),
               .z_stride = q_width_,
               .first_key = keys.first,
               .last_key = keys.last,
               .segment_begin = keys.begin,
               .queries = running_rows(),
               .n_heads = config().n_heads,
               .n_kv_heads = config().n_kv_heads,
               .d_head = config().d_head,
               .scale = scale(),
               .dtype = dtype_},
              stream_);
  }

  // The residual's rows [begin, begin + rows) get the product on top. Where the update itself is
  // looked at, it is computed once more for that, so that looking changes nothing.
  void add_product(Product product, std::int64_t begin, const float* post_norm, Addition addition) {
    product.y_stride = config().d_model;
    if (post_norm != nullptr || addition != Addition::at_once) {
      update_.reserve(running_rows() * config().d_model * element_, "updates");
      product.y = at(update_, begin * config().d_model);
      products_.multiply(product);
    }
    if (addition == Addition::held) {
      held_ = Held{.product = product, .straight = post_norm == nullptr};
      if (post_norm != nullptr) add_rows(begin, product.rows, post_norm, false);
    } else if (post_norm != nullptr) {
      add_rows(begin, product.rows, post_norm, true);
    } else {
      add_straight(product, begin);
    }
  }

  void add_straight(Product product, std::int64_t begin) {
    product.y = at(*stream_of_residual_, begin * config().d_model);
    product.accumulate = true;
    products_.multiply(product);
  }

  void add_rows(std::int64_t begin, std::int64_t count, const float* post_norm, bool add) {
    void* update = at(update_, begin * config().d_model);
    norm({.x = update,
          .weight = post_norm,
          .y = post_norm != nullptr ? update : nullptr,
          .residual = add ? at(*stream_of_residual_, begin * config().d_model) : nullptr,
          .rows = count,
          .n = config().d_model,
          .eps = static_cast<float>(config().norm_eps),
          .dtype = dtype_},
         stream_);
  }

  DeviceView view(Buffer buffer) const {
    const auto rows = running_rows();
    const auto& c = config();
    const auto plain = [&](void* data, std::int64_t width, std::int64_t stride,
                           std::int64_t count) {
      return DeviceView{data, stride, count, 1, width, false, dtype_};
    };
    const auto heads = [&](void* data, std::int64_t count, std::int64_t stride) {
      return DeviceView{data, stride, rows, count, c.d_head, true, dtype_};
    };
    switch (buffer) {
      case Buffer::residual:
        return plain(residual(), c.d_model, c.d_model, rows);
      case Buffer::normalized:
        return plain(hidden_.data(), c.d_model, c.d_model, rows);
      case Buffer::q:
        return heads(at(qkv_, 0), c.n_heads, qkv_width());
      case Buffer::k:
        return heads(at(qkv_, q_width_), c.n_kv_heads, qkv_width());
      case Buffer::v:
        return heads(at(qkv_, q_width_ + kv_width_), c.n_kv_heads, qkv_width());
      case Buffer::z:
        return heads(hidden_.data(), c.n_heads, q_width_);
      case Buffer::update:
        return plain(update_.data(), c.d_model, c.d_model, rows);
      case Buffer::gate:
        if (gated_rows_ > 0) return plain(gated_.data(), c.d_mlp, c.d_mlp, gated_rows_);
        return plain(gate_up_.data(), c.d_mlp, 2 * c.d_mlp, mlp_count_);
      case Buffer::up:
        return plain(at(gate_up_, c.d_mlp), c.d_mlp, 2 * c.d_mlp, mlp_count_);
      case Buffer::logits:
        break;
    }
    return plain(logits_.data(), c.vocab_size, c.vocab_size, rows);
  }

  ScoreSource score_source() const {
    return {.q = at(qkv_, 0),
            .k = at(qkv_, q_width_),
            .row_stride = qkv_width(),
            .n_heads = config().n_heads,
            .n_kv_heads = config().n_kv_heads,
            .d_head = config().d_head,
            .scale = scale(),
            .window = layer_config_.window,
            .dtype = dtype_};
  }

  EditedScores fetch_attention() {
    return {.q = sights_.fetch(view(Buffer::q)),
            .k = sights_.fetch(view(Buffer::k)),
            .v = sights_.fetch(view(Buffer::v)),
            .segments = batch_->segments,
            .scale = scale(),
            .window = layer_config_.window};
  }

  // An update that waits for add_update().
  struct Held {
    Product product;  // that gave it, of all rows
    bool straight = false;
    bool changed = false;
  };
  struct Pending {
    bool norm = false;
    bool rotation = false;
  };

  DType dtype_;
  std::int64_t element_;  // bytes
  int card_;
  std::int64_t q_width_;   // n_heads * d_head
  std::int64_t kv_width_;  // n_kv_heads * d_head
  Budget budget_;
  Stream stream_;
  Products products_;
  FusedAttention attention_;
  DeviceWeights weights_;
  PassRows rows_;
  Sights sights_;

  const Batch* batch_ = nullptr;
  const DeviceLayer* layer_ = nullptr;
  LayerConfig layer_config_;
  Pending pending_;
  std::optional<Held> held_;
  std::optional<EditedScores> edited_;
  std::int64_t mlp_count_ = 0;   // rows in gate_up_
  std::int64_t gated_rows_ = 0;  // rows in gated_; 0: not gated yet

  DeviceBlock residual_;  // (rows, d_model)
  DeviceBlock hidden_;    // (rows, d_model) normalised, then (rows, n_heads * d_head) z
  DeviceBlock qkv_;       // (rows, (n_heads + 2 n_kv_heads) * d_head)
  DeviceBlock gate_up_;   // (MLP rows, 2 d_mlp)
  DeviceBlock gated_;     // (MLP rows, d_mlp) activation(gate) * up
  DeviceBlock update_;    // (rows, d_model) where it is looked at or normalised
  DeviceBlock logits_;    // (rows, vocab_size)
  DeviceBlock kept_residual_;
  DeviceBlock kept_queries_;
  const DeviceBlock* stream_of_residual_ = &residual_;  // residual_ or kept_residual_
  const void* queries_ = nullptr;                       // kept_queries_ in the layer that narrows
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Backend> make_cuda_backend(const Model& model, const BackendOptions& options) {
  return std::make_unique<cuda::CudaBackend>(model, options);
}

}  // namespace qkscope
