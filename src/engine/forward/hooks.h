// Hook points inside the library (qkscope/forward.h is what users see of them), and the plan that
// says which part of the network has to run for what an observer wants.
#pragma once

#include <cstdint>
#include <vector>

#include "qkscope/forward.h"

namespace qkscope {

// Derived points are part of it.
std::vector<HookPoint> all_hook_points(const ModelConfig& model);

// Whether models of this configuration have the stage in this layer.
bool has_stage(const ModelConfig& model, HookPoint point);

class PassPlan {
 public:
  // The first layer that runs, and whether the embedding runs before it. What comes before fires
  // no hook.
  struct Start {
    std::int64_t layer = 0;
    bool embeds = true;
  };

  // Refuses an observer that selects rows or heads which are not there.
  PassPlan(const ModelConfig& model, const Observer& observer, std::int64_t rows, Start start);
  PassPlan(const ModelConfig& model, const Observer& observer, std::int64_t rows)
      : PassPlan(model, observer, rows, Start()) {}
  // The same with statistics of all rows, which need every layer up to this stage.
  PassPlan(const ModelConfig& model, const Observer& observer, std::int64_t rows, Stage statistics);

  // The attention of every layer runs, and no row stops before the last one's.
  void need_all_keys(const ModelConfig& model);

  bool empty() const { return wanted_.empty(); }
  // Nothing at or after this point is wanted.
  bool ends_before(HookPoint point) const;

  // Before the attention of this layer (start - 1: before the first layer, n_layers: before the
  // final norm) all rows but last_rows() stop: nothing that comes after is wanted of the others.
  bool narrows_in(std::int64_t layer) const { return !last_rows_.empty() && layer == narrowing_; }
  const std::vector<std::int64_t>& last_rows() const { return last_rows_; }

 private:
  std::int64_t depth(HookPoint point) const;  // layers in order, then what follows them
  std::int64_t narrowing_layer(const ModelConfig& model) const;
  // False: all rows are needed after the attention of `layer`.
  bool narrow_in(std::int64_t layer, const Observer& observer, std::int64_t rows);

  std::int64_t n_layers_;
  std::vector<HookPoint> wanted_;  // in the order in which they fire; the last ends the pass
  std::int64_t narrowing_ = -1;
  std::vector<std::int64_t> last_rows_;  // ascending; empty: all rows run to the end
};

}  // namespace qkscope
