#include <bit>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "analysis/viewer/head_attention.h"
#include "base/core/convert.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "qkscope/experimental/log.h"
#include "qkscope/experimental/text.h"

namespace qkscope {
namespace {

constexpr std::size_t kWidenedHeads = 4;  // four heads can be shown side by side

constexpr std::int64_t kRows = 8192;  // rows per task: 2 MiB of 128 values in 16 bits

// Transposes an activation (rows, heads, d) to (heads, rows, d). `dtype` is the type of the
// activation, or a 16-bit type to which float32 values are rounded.
Tensor to_head_major(ConstTensorView activation, DType dtype) {
  const auto rows = activation.dim(0);
  const auto heads = activation.dim(1);
  const auto d = activation.dim(2);
  Tensor reordered({heads, rows, d}, dtype);
  auto* bytes = reordered.view().bytes();
  request_huge_pages(bytes, reordered.view().size_bytes());
  const auto size = as_index(d) * dtype_size(dtype);
  const auto from_size = as_index(d) * dtype_size(activation.dtype());
  const auto chunks = (rows + kRows - 1) / kRows;
  parallel_for(heads * chunks, [&](std::int64_t task) {
    const auto head = task / chunks;
    const auto first = task % chunks * kRows;
    for (auto row = first; row < std::min(rows, first + kRows); ++row) {
      const auto* from = activation.bytes() + as_index(row * heads + head) * from_size;
      auto* to = bytes + as_index(head * rows + row) * size;
      const auto* values = reinterpret_cast<const float*>(from);
      if (activation.dtype() == dtype)
        std::memcpy(to, from, size);
      else if (dtype == DType::bf16)
        std::transform(values, values + d, reinterpret_cast<Bf16*>(to), to_bf16);
      else
        std::transform(values, values + d, reinterpret_cast<Fp16*>(to), to_fp16);
    }
  });
  return reordered;
}

Tensor convert_rows_to_float32(ConstTensorView x) {
  Tensor widened(x.shape());
  request_huge_pages(widened.view().bytes(), widened.view().size_bytes());
  parallel_for_ranges(x.dim(0), kRows, [&](std::int64_t begin, std::int64_t end) {
    convert_to_float32(x.rows(begin, end), {widened.data<float>() + begin * x.dim(1),
                                            as_index((end - begin) * x.dim(1))});
  });
  return widened;
}

// Widens head `head` of a (heads, rows, d) tensor to float32 (rows, d).
Tensor head_to_float32(const Tensor& heads, std::int64_t head) {
  return convert_rows_to_float32(
      heads.view().rows(head, head + 1).reshaped({heads.dim(1), heads.dim(2)}));
}

}  // namespace

std::int64_t QueryKeyStoragePlan::snapshot_count() const {
  // The first layers are recomputed from the tokens, so layer 0 needs no snapshot.
  return recomputes_layers() ? (layers - 1) / snapshot_step : 0;
}

std::int64_t QueryKeyStoragePlan::memory_bytes() const {
  return kept_layers * layer_bytes + snapshot_count() * residual_bytes + pass_bytes;
}

QueryKeyStoragePlan plan_query_key_storage(const ModelConfig& config, Device device, DType dtype,
                                           std::int64_t rows, std::int64_t memory) {
  QueryKeyStoragePlan plan;
  plan.dtype = device.kind == Device::Kind::cpu ? DType::f32 : dtype;
  plan.layers = config.n_layers;
  plan.layer_bytes = rows * (config.n_heads + config.n_kv_heads) * config.d_head *
                     static_cast<std::int64_t>(dtype_size(plan.dtype));
  plan.residual_bytes = rows * config.d_model * 4;
  // A pass on a GPU needs two staging buffers in host memory, one for q or the residual stream and
  // one for k. Their sizes are powers of two.
  const auto staged = [&](std::int64_t width) {
    const auto bytes = as_index(rows * width) * dtype_size(plan.dtype);
    return static_cast<std::int64_t>(std::bit_ceil(bytes));
  };
  plan.pass_bytes = device.kind == Device::Kind::cpu
                        ? cpu_activation_bytes(config, rows)
                        : staged(std::max(config.n_heads * config.d_head, config.d_model)) +
                              staged(config.n_kv_heads * config.d_head);
  plan.kept_layers = config.n_layers;
  if (plan.memory_bytes() <= memory) return plan;
  plan.kept_layers = std::min<std::int64_t>(2, config.n_layers);
  for (plan.snapshot_step = 1; plan.snapshot_step < config.n_layers; ++plan.snapshot_step)
    if (plan.memory_bytes() <= memory) break;
  if (plan.memory_bytes() > memory)
    reject(
        "memory for queries and keys: {} are available, but {} tokens need at least {} (two layers "
        "and the pass); give more with --memory, or a shorter text",
        format_bytes(memory), rows, format_bytes(plan.memory_bytes()));
  const auto room = memory - plan.memory_bytes();
  plan.kept_layers = std::min(config.n_layers, plan.kept_layers + room / plan.layer_bytes);
  return plan;
}

std::string describe_storage_plan(const QueryKeyStoragePlan& plan) {
  const auto total = format_bytes(plan.memory_bytes());
  if (!plan.recomputes_layers())
    return fmt::format("keeps q and k of all {} layers in {} ({}): {} with the pass", plan.layers,
                       format_bytes(plan.layers * plan.layer_bytes), dtype_name(plan.dtype), total);
  return fmt::format(
      "q and k of all {} layers need {} and do not fit: keeps {} layers and {} residual streams "
      "({} with the pass), and recomputes the other layers on request, each from at most {} "
      "layer{} before it",
      plan.layers, format_bytes(plan.layers * plan.layer_bytes), plan.kept_layers,
      plan.snapshot_count(), total, plan.snapshot_step - 1, plan.snapshot_step == 2 ? "" : "s");
}

// Observer that stores q and k of layers [first, end) and the residual snapshots before them.
class QueryKeyStore::LayerRecorder : public Observer {
 public:
  LayerRecorder(QueryKeyStore& store, std::int64_t first, std::int64_t end, bool take_snapshots,
                bool quiet)
      : store_(store),
        first_(first),
        end_(end),
        take_snapshots_(take_snapshots),
        progress_({.what = "pass", .unit = "layers", .total = end, .quiet = quiet}) {}

  bool wants(HookPoint point) const override {
    const auto step = store_.plan_.snapshot_step;
    if (point.stage == Stage::resid_pre)
      return take_snapshots_ && step > 0 && point.layer > 0 && point.layer % step == 0;
    return (point.stage == Stage::rot_q || point.stage == Stage::rot_k) && point.layer >= first_ &&
           point.layer < end_;
  }

  Selection selection(HookPoint) const override {
    return {.rows = {}, .heads = {}, .native_type = true};
  }

  void begin_layer(std::int64_t layer) override { progress_.update(layer); }

  void observe(HookPoint point, ConstTensorView activation) override {
    if (point.stage == Stage::resid_pre) {
      store_.snapshots_.emplace(point.layer, convert_rows_to_float32(activation));
      return;
    }
    (point.stage == Stage::rot_q ? current_.q : current_.k) =
        to_head_major(activation, store_.plan_.dtype);
    if (point.stage == Stage::rot_q) return;
    store_.layers_.add(point.layer,
                       std::make_shared<LayerVectors>(std::exchange(current_, LayerVectors())));
  }

  void finish() { progress_.finish(); }

 private:
  QueryKeyStore& store_;
  std::int64_t first_;
  std::int64_t end_;
  bool take_snapshots_;
  Progress progress_;
  LayerVectors current_;
};

QueryKeyStore::QueryKeyStore(std::shared_ptr<const Model> model, std::span<const std::int32_t> ids,
                             const QueryKeyStoragePlan& plan, bool quiet)
    : model_(std::move(model)), config_(model_->config()), plan_(plan) {
  batch_.add(ids);
  for (const auto& layer : model_->weights().layers) sinks_.push_back(layer.sinks);
  // Keep the last layers: users view them more often, and all layers cost the same to recompute.
  LayerRecorder keeper(*this, config_.n_layers - plan_.kept_layers, config_.n_layers, true, quiet);
  run_forward_pass(keeper, 0);
  keeper.finish();
  if (!plan_.recomputes_layers()) model_.reset();
}

void QueryKeyStore::run_forward_pass(Observer& observer, std::int64_t first_layer) const {
  if (first_layer == 0) return model_->run(batch_, observer);
  Batch positions;
  positions.add_positions(rows());
  const RunOptions options{.residual = snapshots_.at(first_layer), .start_at_layer = first_layer};
  model_->run(positions, observer, options);
}

bool QueryKeyStore::has_layer(std::int64_t layer) const {
  return layer >= 0 && layer < config_.n_layers && config_.layers[as_index(layer)].has_attention();
}

std::shared_ptr<const LayerVectors> QueryKeyStore::layer_vectors(std::int64_t layer) {
  QKSCOPE_ASSERT(has_layer(layer));
  if (const auto* found = layers_.find(layer)) return *found;
  layers_.evict_until_below(as_index(plan_.kept_layers));
  LayerRecorder keeper(*this, layer, layer + 1, false, true);
  const auto after = snapshots_.upper_bound(layer);
  run_forward_pass(keeper, after == snapshots_.begin() ? 0 : std::prev(after)->first);
  return *layers_.find(layer);
}

HeadVectors QueryKeyStore::head_vectors(std::int64_t layer_number, std::int64_t head) {
  const auto kv_head = head / config_.heads_per_kv_head();
  if (plan_.dtype == DType::f32) {
    const auto size = rows() * config_.d_head;
    auto vectors = layer_vectors(layer_number);
    return {vectors->q.data<float>() + head * size, vectors->k.data<float>() + kv_head * size,
            vectors};
  }
  const auto* found = widened_.find({layer_number, head});
  if (found == nullptr) {
    const auto vectors = layer_vectors(layer_number);
    widened_.evict_until_below(kWidenedHeads);
    LayerVectors wide{head_to_float32(vectors->q, head), head_to_float32(vectors->k, kv_head)};
    found = &widened_.add({layer_number, head}, std::make_shared<LayerVectors>(std::move(wide)));
  }
  return {(*found)->q.data<float>(), (*found)->k.data<float>(), *found};
}

}  // namespace qkscope
