#include "forward/plan.h"

namespace qkscope {

Plan::Plan(const ModelConfig& model, const Observer& observer) : n_layers_(model.n_layers) {
  for (const auto point : hook_points(model)) {  // in the order in which they fire
    if (!observer.wants(point)) continue;
    any_ = true;
    last_ = point;
  }
}

std::int64_t Plan::depth(HookPoint point, std::int64_t n_layers) {
  if (point.stage == Stage::embed) return -1;
  return point.layer >= 0 ? point.layer : n_layers;
}

bool Plan::ends_before(HookPoint point) const {
  const auto here = depth(point, n_layers_);
  const auto there = depth(last_, n_layers_);
  return !any_ || there < here || (there == here && last_.stage < point.stage);
}

}  // namespace qkscope
