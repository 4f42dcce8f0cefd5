// Which part of the network has to run for what was asked.
#pragma once

#include <cstdint>

#include "forward/hooks.h"

namespace qkscope {

class Plan {
 public:
  Plan(const ModelConfig& model, const Observer& observer);

  bool empty() const { return !any_; }
  // Nothing at or after this point is wanted any more.
  bool ends_before(HookPoint point) const;

 private:
  // Layers in order, then what follows them.
  static std::int64_t depth(HookPoint point, std::int64_t n_layers);

  std::int64_t n_layers_;
  bool any_ = false;
  HookPoint last_;
};

}  // namespace qkscope
