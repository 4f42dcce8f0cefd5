// Forward pass over whole sequences, layer by layer; list of the hook points of a model; and the
// plan of the layers and rows that a pass has to compute for an observer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/core/thread_pool.h"
#include "engine/device/backend.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/linear.h"
#include "qkscope/forward.h"
#include "qkscope/model.h"
#include "qkscope/tensor.h"

namespace qkscope {

// Returns all hook points of a model in firing order, including derived ones.
std::vector<HookPoint> all_hook_points(const ModelConfig& model);

// Returns true if the model has this hook point, which depends on the kind of its layer.
bool has_hook_point(const ModelConfig& model, HookPoint point);

// Plans the last layer of a pass and the first layer that computes only the rows in use.
class PassPlan {
 public:
  // Hook points before options.start_at_layer do not fire, nor do those of the embedding in a pass
  // that starts from a residual. Throws a bad-input error if the observer selects rows or heads
  // that do not exist.
  PassPlan(const ModelConfig& model, const Observer& observer, std::int64_t rows,
           const RunOptions& options = {});
  // Keeps all rows, and runs at least up to stage `statistics` of the last attention layer.
  PassPlan(const ModelConfig& model, const Observer& observer, std::int64_t rows, Stage statistics);

  // Extends the plan so that every layer computes the keys and values of all rows, for a KV cache.
  void include_all_keys_and_values(const ModelConfig& model);

  bool empty() const { return wanted_.empty(); }
  // Returns true if no activation at or after this hook point is requested: the pass may stop.
  bool ends_before(HookPoint point) const;

  // Returns true if the pass drops rows not in kept_rows() just before the attention of this layer.
  // Also accepts start_at_layer - 1 (before the first layer) and n_layers (before the final norm).
  bool drops_rows_in(std::int64_t layer) const {
    return !kept_rows_.empty() && layer == drop_layer_;
  }
  const std::vector<std::int64_t>& kept_rows() const { return kept_rows_; }

 private:
  std::int64_t layer_index(HookPoint point) const;  // -1: embedding, n_layers: after the layers
  std::int64_t last_attention_layer(const ModelConfig& model) const;
  // Tries to drop rows at a layer; returns false if all rows are needed after its attention.
  bool try_drop_rows(std::int64_t layer, const Observer& observer, std::int64_t rows);

  std::int64_t n_layers_;
  std::vector<HookPoint> wanted_;  // in firing order; the last one ends the pass
  std::int64_t drop_layer_ = -1;
  std::vector<std::int64_t> kept_rows_;  // ascending; empty: no row is dropped
};

// Accumulates statistics of every row during a pass, by calling steps of the backend. A pass with
// statistics runs all rows through all layers, up to the last stage that the statistics need.
class LayerStatistics {
 public:
  virtual ~LayerStatistics() = default;
  // Returns true if attention must run in all layers, for collect_after_attention() to be called.
  virtual bool accumulates_attention() const = 0;
  // Called in each layer; after attention, the backend holds the softmax sums of the layer's rows.
  virtual void collect_before_rotation(Backend& backend, std::int64_t layer) = 0;
  virtual void collect_after_rotation(Backend& backend, std::int64_t layer) = 0;
  virtual void collect_after_attention(Backend& backend, std::int64_t layer) = 0;
};

// Timer interface: each call ends a step of a pass and begins the next. The base does nothing.
class StepTimer {
 public:
  virtual ~StepTimer() = default;
  // Ends the step that computes the activation of a hook point, even if the model lacks the point.
  virtual void end_step(HookPoint /*point*/) {}
  // Ends the step named `part`, whose result has no hook point.
  virtual void end_named_step(const char* /*part*/) {}
};

// Runs a batch and shows the observer the hook points it wants. Stops after the last wanted stage,
// and runs the end of the network only for the wanted rows. Tokens attend only to their own
// sequence; on the CPU the results of a sequence are bit-identical to a separate run.
void forward(Backend& backend, const Batch& batch, Observer& observer,
             const RunOptions& options = {}, StepTimer* timer = nullptr);

// Runs all layers and appends to a KV cache, whose lengths are unchanged after an exception.
void forward(Backend& backend, const Batch& batch, Observer& observer, KvCacheMemory& store);

void forward(Backend& backend, const Batch& batch, Observer& observer, LayerStatistics& statistics);

// Runs a batch on the CPU with a new backend.
void forward(const LoadedCheckpoint& model, const Batch& batch, Observer& observer,
             const RunOptions& options = {});

// Observer that requests no hook points, for passes run only for statistics or timing.
class NullObserver : public Observer {
 public:
  bool wants(HookPoint) const override { return false; }
  void observe(HookPoint, ConstTensorView) override {}
};

// Returns weight rows (d, in) and bias of one head; heads may be strided blocks of a larger matrix.
inline Linear select_head_rows(const Linear& linear, std::int64_t head, std::int64_t d) {
  const auto& [weight, bias] = linear;
  const auto& v = weight.values;
  const Shape strides{v.stride(v.rank() - 2), v.stride(v.rank() - 1)};
  Linear part;
  part.weight = {strided_view(v, weight.row_offset(head * d), {d, weight.in()}, strides),
                 weight.scale};
  if (!bias.empty()) part.bias.assign(bias.begin() + head * d, bias.begin() + (head + 1) * d);
  return part;
}

// Copies heads [first, first + count) of `all` (rows, heads, width); shape (rows, count, width).
inline Tensor copy_heads(ConstTensorView all, std::int64_t first, std::int64_t count) {
  const auto width = all.dim(2);
  Tensor heads({all.dim(0), count, width});
  for (std::int64_t row = 0; row < all.dim(0); ++row)
    std::copy_n(all.data<float>() + (row * all.dim(1) + first) * width, count * width,
                heads.data<float>() + row * count * width);
  return heads;
}

// Returns the divisor of RMSNorm or LayerNorm for each row of x (rows, n); shape (rows, 1).
inline Tensor norm_divisors(ConstTensorView x, NormKind kind, double eps) {
  const auto n = x.dim(1);
  Tensor scales({x.dim(0), 1});
  parallel_for(x.dim(0), [&](std::int64_t row) {
    const float* values = x.data<float>() + row * n;
    double mean = 0.0;
    for (std::int64_t i = 0; kind == NormKind::layer && i < n; ++i) mean += values[i];
    mean /= static_cast<double>(n);
    double squares = 0.0;
    for (std::int64_t i = 0; i < n; ++i) squares += (values[i] - mean) * (values[i] - mean);
    scales.data<float>()[row] =
        static_cast<float>(std::sqrt(squares / static_cast<double>(n) + eps));
  });
  return scales;
}

// Returns shape (rows, heads, d_model): the contribution of each head of z (rows, heads, d_head)
// through the output projection (d_model, heads * d_head), without bias.
inline Tensor head_contributions(ConstTensorView z, const WeightMatrix& output) {
  const auto heads = z.dim(1);
  const auto d = z.dim(2);
  const auto width = output.out();
  const auto& v = output.values;
  Tensor contributions({z.dim(0), heads, width});
  for (std::int64_t head = 0; head < heads; ++head) {
    const TensorView head_result(
        contributions.view().bytes() + head * width * std::int64_t{sizeof(float)}, DType::f32,
        {z.dim(0), width}, {heads * width, 1}, {});
    const Tensor one = copy_heads(z, head, 1);
    const WeightMatrix columns{strided_view(v, head * d * v.stride(1), {width, d}, v.strides()),
                               output.scale};
    apply_linear(one.view().reshaped({z.dim(0), d}), columns, head_result);
  }
  return contributions;
}

// Returns shape (rows, heads, d_model): a copy of x (rows, d_model) per head.
inline Tensor repeat_per_head(ConstTensorView x, std::int64_t heads) {
  const auto width = x.dim(1);
  Tensor repeated({x.dim(0), heads, width});
  for (std::int64_t i = 0; i < x.dim(0) * heads; ++i)
    std::copy_n(x.data<float>() + i / heads * width, width, repeated.data<float>() + i * width);
  return repeated;
}

// q, k or v of one head, computed from an input that an observer replaced.
struct EditedHead {
  std::int64_t head;
  Tensor values;  // (rows, d_head)
};

// Projects the heads whose input (rows, heads, d_model) differs from x (rows, d_model).
inline std::vector<EditedHead> project_edited_heads(const ModelConfig& model,
                                                    const NormWeights& norm, const Linear& layer,
                                                    ConstTensorView x, ConstTensorView inputs) {
  std::vector<EditedHead> projected;
  for (std::int64_t head = 0; head < inputs.dim(1); ++head) {
    Tensor one = copy_heads(inputs, head, 1);
    const auto input = one.view().reshaped(x.shape());
    if (std::memcmp(input.bytes(), x.bytes(), x.size_bytes()) == 0) continue;
    apply_norm(model.norm, input, norm, model.norm_eps, input);
    const auto d_head = layer.weight.out() / inputs.dim(1);
    Tensor values({x.dim(0), d_head});
    apply_linear(input, select_head_rows(layer, head, d_head), values);
    if (model.qkv_clip > 0.0) clip(values, model.qkv_clip);
    projected.push_back({head, std::move(values)});
  }
  return projected;
}

}  // namespace qkscope
