// For passes that are run for their statistics or their time: nobody looks at the pass itself.
#pragma once

#include "qkscope/forward.h"

namespace qkscope {

class NoObserver : public Observer {
 public:
  bool wants(HookPoint) const override { return false; }
  void see(HookPoint, ConstTensorView) override {}
};

}  // namespace qkscope
