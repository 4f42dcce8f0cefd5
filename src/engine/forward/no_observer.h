// Observer that wants nothing, for passes that are run for statistics or timing.
#pragma once

#include "qkscope/forward.h"

namespace qkscope {

class NoObserver : public Observer {
 public:
  bool wants(HookPoint) const override { return false; }
  void see(HookPoint, ConstTensorView) override {}
};

}  // namespace qkscope
