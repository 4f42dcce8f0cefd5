#include <algorithm>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "capture/stats_run/stats_pass.h"
#include "capture/writer/part_writer.h"

namespace qkscope {
namespace {

constexpr std::array kStages = {Stage::rot_q, Stage::rot_k, Stage::v};

std::size_t vector_kind_index(HookPoint point) {
  return as_index(std::ranges::find(kStages, point.stage) - kStages.begin());
}

}  // namespace

ExternalEngineObserver::ExternalEngineObserver(const EngineModel& model)
    : model_{.checkpoint = {}, .config = model.config, .weights = {}}, d_value_(model.d_value) {
  model_.config.d_model = 1;  // smallest: there is no residual stream
  model_.weights.layers.resize(as_index(model.config.n_layers));
  backend_ = make_backend(model_, {.device = {}, .dtype = DType::f32});
}

ExternalEngineObserver::~ExternalEngineObserver() = default;

bool ExternalEngineObserver::wants(HookPoint point) const {
  return vector_kind_index(point) < kStages.size() &&
         !model_.config.layers[as_index(point.layer)].cross_attention;
}

void ExternalEngineObserver::run_batch(const Batch& batch, const RunPass& run,
                                       LayerStatistics& statistics) {
  batch_ = &batch;
  statistics_ = &statistics;
  waiting_.clear();
  done_.assign(as_index(model_.config.n_layers), false);
  backend_->begin_pass(batch);
  backend_->set_keep_softmax_sums(statistics.accumulates_attention());
  const Tensor residual({batch.rows(), 1});
  backend_->set_residual(residual);
  run(batch, *this);
  backend_->finish_pass();
  for (std::int64_t layer = 0; layer < model_.config.n_layers; ++layer)
    if (wants({Stage::v, layer}) && !done_[as_index(layer)])
      reject("layer {}: the engine passed not all of q, k and v in a forward pass", layer);
}

void ExternalEngineObserver::observe(HookPoint point, ConstTensorView activation) {
  if (point.layer < 0 || point.layer >= model_.config.n_layers || !wants(point))
    reject("the engine passed {}, which the statistics do not want", hook_name(point));
  const auto kind = vector_kind_index(point);
  const auto heads = kind == 0 ? model_.config.n_heads : model_.config.n_kv_heads;
  const Shape expected = {batch_->rows(), heads, vector_width(kind)};
  if (activation.shape() != expected || activation.dtype() != DType::f32)
    reject("{}: the engine passed {} of shape {}; expected float32 of shape {}", hook_name(point),
           dtype_name(activation.dtype()), activation.shape().to_string(), expected.to_string());
  auto& vectors = waiting_[point.layer];
  if (done_[as_index(point.layer)] || !vectors[kind].empty())
    reject("{}: the engine passed it twice in one forward pass", hook_name(point));
  vectors[kind] = contiguous_copy(activation);
  if (std::ranges::any_of(vectors, [](const Tensor& part) { return part.empty(); })) return;
  backend_->begin_layer(point.layer);
  for (std::size_t i = 0; i < kVectorBuffers.size(); ++i) {
    // Value vectors of a width other than d_head have no statistics, so their buffer stays zero.
    if (vector_width(i) != model_.config.d_head) continue;
    backend_->edit_buffer(kVectorBuffers[i], [&](TensorView to) {
      std::copy_n(vectors[i].data<float>(), vectors[i].size(), to.data<float>());
    });
  }
  statistics_->collect_before_rotation(*backend_, point.layer);
  statistics_->collect_after_rotation(*backend_, point.layer);
  if (statistics_->accumulates_attention()) {
    backend_->compute_attention();
    statistics_->collect_after_attention(*backend_, point.layer);
  }
  waiting_.erase(point.layer);
  done_[as_index(point.layer)] = true;
}

}  // namespace qkscope
