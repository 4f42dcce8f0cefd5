// Runs a test under every CPU target that the machine has.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "core/cpu_target.h"

namespace qkscope {

// Calls body(name) with each target in use, best first, and leaves the one that was in use before.
template <typename Body>
void for_each_cpu_target(Body body) {
  const auto before = cpu_target();
  for (const auto& name : cpu_targets()) {
    SCOPED_TRACE("CPU target " + name);
    use_cpu_target(name);
    body(name);
  }
  use_cpu_target(before);
}

}  // namespace qkscope
