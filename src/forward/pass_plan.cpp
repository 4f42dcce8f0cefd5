#include "forward/pass_plan.h"

#include <algorithm>

namespace qkscope {

PassPlan::PassPlan(const ModelConfig& model, const Observer& observer, std::int64_t rows)
    : n_layers_(model.n_layers) {
  for (const auto point : hook_points(model))
    if (observer.wants(point)) wanted_.push_back(point);
  if (empty()) return;
  narrowing_ = narrowing_layer(model);
  find_last_rows(observer, rows);
}

std::int64_t PassPlan::depth(HookPoint point) const {
  if (point.stage == Stage::embed) return -1;
  return point.layer >= 0 ? point.layer : n_layers_;
}

bool PassPlan::ends_before(HookPoint point) const {
  if (empty()) return true;
  const auto last = wanted_.back();
  return depth(last) < depth(point) || (depth(last) == depth(point) && last.stage < point.stage);
}

// The last layer whose attention is needed: the keys and values of all rows enter there.
std::int64_t PassPlan::narrowing_layer(const ModelConfig& model) const {
  const auto last = wanted_.back();
  auto layer = depth(last);
  if (layer >= 0 && layer < n_layers_ && last.stage > Stage::rot_k) return layer;
  do --layer;
  while (layer >= 0 && model.layers[static_cast<std::size_t>(layer)].cross_attention);
  return std::max<std::int64_t>(layer, -1);
}

void PassPlan::find_last_rows(const Observer& observer, std::int64_t rows) {
  std::vector<bool> needed(static_cast<std::size_t>(rows));
  for (const auto point : wanted_) {
    if (observer.edits(point)) return;  // whoever edits may look at every row
    const bool after =
        depth(point) > narrowing_ || (depth(point) == narrowing_ && point.stage > Stage::pattern);
    if (!after || point.stage == Stage::embed) continue;
    const auto chosen = observer.selection(point).rows;
    if (chosen.empty()) return;
    for (const auto row : chosen) needed[static_cast<std::size_t>(row)] = true;
  }
  for (std::int64_t row = 0; row < rows; ++row)
    if (needed[static_cast<std::size_t>(row)]) last_rows_.push_back(row);
  if (static_cast<std::int64_t>(last_rows_.size()) == rows) last_rows_.clear();
}

}  // namespace qkscope
