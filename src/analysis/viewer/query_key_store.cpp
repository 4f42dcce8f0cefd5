#include "analysis/viewer/query_key_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/core/convert.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "engine/forward/derived.h"
#include "qkscope/experimental/log.h"
#include "qkscope/experimental/text.h"

namespace qkscope {
namespace {

constexpr std::size_t kWidenedHeads = 4;  // four heads can be shown side by side

// Copies one head of a (rows, heads, d) activation to contiguous rows of the stored type.
template <typename T, typename Convert>
void copy_head(ConstTensorView from, std::int64_t head, T* to, Convert convert) {
  const auto heads = from.dim(1);
  const auto d = from.dim(2);
  const float* values = from.data<float>() + head * d;
  for (std::int64_t row = 0; row < from.dim(0); ++row, values += heads * d, to += d)
    std::transform(values, values + d, to, convert);
}

// Reorders an activation (rows, heads, d) to (heads, rows, d) in the given type. The rounding is
// exact, because a pass in a 16-bit type computes q and k in that type.
Tensor reorder_heads(ConstTensorView activation, DType dtype) {
  const auto rows = activation.dim(0);
  const auto heads = activation.dim(1);
  const auto d = activation.dim(2);
  Tensor reordered({heads, rows, d}, dtype);
  parallel_for(heads, [&](std::int64_t head) {
    const auto offset = head * rows * d;
    if (dtype == DType::f32)
      copy_head(activation, head, reordered.data<float>() + offset, [](float x) { return x; });
    else if (dtype == DType::bf16)
      copy_head(activation, head, reordered.data<Bf16>() + offset, to_bf16);
    else
      copy_head(activation, head, reordered.data<Fp16>() + offset, to_fp16);
  });
  return reordered;
}

// Widens head `head` of a (heads, rows, d) tensor to float32 (1, rows, d).
Tensor widen_head(const Tensor& heads, std::int64_t head) {
  const auto rows = heads.shape()[1];
  const auto d = heads.shape()[2];
  Tensor widened({1, rows, d});
  const ConstTensorView all = heads;
  constexpr std::int64_t kRows = 4096;
  parallel_for((rows + kRows - 1) / kRows, [&](std::int64_t block) {
    const auto first = block * kRows;
    const auto count = std::min(kRows, rows - first);
    const auto offset = as_index((head * rows + first) * d) * dtype_size(all.dtype());
    convert_to_float32({all.bytes() + offset, all.dtype(), {count * d}},
                       {widened.data<float>() + first * d, as_index(count * d)});
  });
  return widened;
}

}  // namespace

std::int64_t QueryKeyPlan::snapshots() const {
  // A run from tokens reaches layer 0, so layer 0 needs no snapshot.
  return recomputes() ? (layers - 1) / snapshot_step : 0;
}

std::int64_t QueryKeyPlan::bytes() const {
  return kept_layers * layer_bytes + snapshots() * residual_bytes + pass_bytes;
}

QueryKeyPlan plan_query_keys(const ModelConfig& config, Device device, DType dtype,
                             std::int64_t rows, std::int64_t memory) {
  QueryKeyPlan plan;
  plan.dtype = device.kind == Device::Kind::cpu ? DType::f32 : dtype;
  plan.layers = config.n_layers;
  plan.layer_bytes = rows * (config.n_heads + config.n_kv_heads) * config.d_head *
                     static_cast<std::int64_t>(dtype_size(plan.dtype));
  plan.residual_bytes = rows * config.d_model * 4;
  // On a GPU the host holds one activation at a time.
  plan.pass_bytes = device.kind == Device::Kind::cpu ? cpu_activation_bytes(config, rows)
                                                     : rows * config.n_heads * config.d_head * 4;
  plan.kept_layers = config.n_layers;
  if (plan.bytes() <= memory) return plan;
  plan.kept_layers = std::min<std::int64_t>(2, config.n_layers);
  for (plan.snapshot_step = 1; plan.snapshot_step < config.n_layers; ++plan.snapshot_step)
    if (plan.bytes() <= memory) break;
  if (plan.bytes() > memory)
    bad_input(
        "memory for queries and keys: {} are available, but {} tokens need at least {} (two layers "
        "and the pass); give more with --memory, or a shorter text",
        format_bytes(memory), rows, format_bytes(plan.bytes()));
  const auto room = memory - plan.bytes();
  plan.kept_layers = std::min(config.n_layers, plan.kept_layers + room / plan.layer_bytes);
  return plan;
}

std::string describe_plan(const QueryKeyPlan& plan) {
  const auto total = format_bytes(plan.bytes());
  if (!plan.recomputes())
    return fmt::format("keeps q and k of all {} layers in {} ({}): {} with the pass", plan.layers,
                       format_bytes(plan.layers * plan.layer_bytes), dtype_name(plan.dtype), total);
  return fmt::format(
      "q and k of all {} layers need {} and do not fit: keeps {} layers and {} residual streams "
      "({} with the pass), and recomputes the other layers on request, each from at most {} "
      "layer{} before it",
      plan.layers, format_bytes(plan.layers * plan.layer_bytes), plan.kept_layers, plan.snapshots(),
      total, plan.snapshot_step - 1, plan.snapshot_step == 2 ? "" : "s");
}

// Observer that stores q and k of layers [first, end) and the residual snapshots before them.
class QueryKeyStore::Keeper : public Observer {
 public:
  Keeper(QueryKeyStore& store, std::int64_t first, std::int64_t end, bool take_snapshots,
         bool quiet)
      : store_(store),
        first_(first),
        end_(end),
        take_snapshots_(take_snapshots),
        progress_({.what = "pass", .unit = "layers", .total = end, .quiet = quiet}) {}

  bool wants(HookPoint point) const override {
    if (point.stage == Stage::resid_pre) return take_snapshots_ && is_snapshot(point.layer);
    return (point.stage == Stage::rot_q || point.stage == Stage::rot_k) && keeps(point.layer);
  }

  void begin_layer(std::int64_t layer) override { progress_.update(layer); }

  void see(HookPoint point, ConstTensorView activation) override {
    if (point.stage == Stage::resid_pre) {
      store_.snapshots_.emplace(point.layer, copy_of(activation));
      return;
    }
    auto reordered = reorder_heads(activation, store_.plan_.dtype);
    if (point.stage == Stage::rot_q) {
      current_.q = std::move(reordered);
      return;
    }
    current_.k = std::move(reordered);
    store_.layers_[point.layer] = std::make_shared<LayerVectors>(std::move(current_));
    store_.used_.push_back(point.layer);
    current_ = {};
  }

  void finish() { progress_.finish(); }

 private:
  bool keeps(std::int64_t layer) const { return layer >= first_ && layer < end_; }
  bool is_snapshot(std::int64_t layer) const {
    const auto step = store_.plan_.snapshot_step;
    return step > 0 && layer > 0 && layer % step == 0;
  }

  QueryKeyStore& store_;
  std::int64_t first_;
  std::int64_t end_;
  bool take_snapshots_;
  Progress progress_;
  LayerVectors current_;
};

QueryKeyStore::QueryKeyStore(std::shared_ptr<const Model> model, std::span<const std::int32_t> ids,
                             const QueryKeyPlan& plan, bool quiet)
    : model_(std::move(model)), config_(model_->config()), plan_(plan) {
  batch_.add(ids);
  for (const auto& layer : model_->weights().layers) sinks_.push_back(layer.sinks);
  // The last layers are kept: the snapshots make them as cheap to recompute as the first ones, and
  // heads of late layers are looked at more often.
  Keeper keeper(*this, config_.n_layers - plan_.kept_layers, config_.n_layers, true, quiet);
  run(keeper, 0);
  keeper.finish();
  if (!plan_.recomputes()) model_.reset();
}

void QueryKeyStore::run(Observer& observer, std::int64_t first_layer) const {
  if (first_layer == 0) {
    model_->run(batch_, observer);
    return;
  }
  Batch positions;
  positions.add_positions(rows());
  const RunOptions options{.residual = snapshots_.at(first_layer), .start_at_layer = first_layer};
  model_->run(positions, observer, options);
}

bool QueryKeyStore::has_layer(std::int64_t layer) const {
  return layer >= 0 && layer < config_.n_layers && !config_.layers[as_index(layer)].cross_attention;
}

std::shared_ptr<const LayerVectors> QueryKeyStore::layer(std::int64_t layer) {
  QKSCOPE_ASSERT(has_layer(layer));
  if (!layers_.contains(layer)) {
    while (std::ssize(layers_) >= plan_.kept_layers) {
      layers_.erase(used_.front());
      used_.pop_front();
    }
    Keeper keeper(*this, layer, layer + 1, false, true);
    const auto after = snapshots_.upper_bound(layer);
    run(keeper, after == snapshots_.begin() ? 0 : std::prev(after)->first);
  }
  used_.remove(layer);
  used_.push_back(layer);
  return layers_.at(layer);
}

HeadVectors QueryKeyStore::head(std::int64_t layer_number, std::int64_t head) {
  const auto kv_head = head / config_.heads_per_kv_head();
  const auto size = rows() * config_.d_head;
  if (plan_.dtype == DType::f32) {
    auto vectors = layer(layer_number);
    return {vectors->q.data<float>() + head * size, vectors->k.data<float>() + kv_head * size,
            vectors};
  }
  auto found = std::ranges::find_if(widened_, [&](const WidenedHead& entry) {
    return entry.layer == layer_number && entry.head == head;
  });
  if (found == widened_.end()) {
    const auto vectors = layer(layer_number);
    auto wide = std::make_shared<LayerVectors>();
    wide->q = widen_head(vectors->q, head);
    wide->k = widen_head(vectors->k, kv_head);
    if (widened_.size() >= kWidenedHeads) widened_.pop_front();
    found = widened_.insert(widened_.end(), {layer_number, head, std::move(wide)});
  } else {
    widened_.splice(widened_.end(), widened_, found);
  }
  return {found->vectors->q.data<float>(), found->vectors->k.data<float>(), found->vectors};
}

}  // namespace qkscope
