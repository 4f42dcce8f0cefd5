// The small models of tests/golden, as the forward pass takes them.
#pragma once

#include <string>

#include "engine/forward/forward.h"
#include "paths.h"

namespace qkscope {

inline LoadedCheckpoint load_golden(const std::string& name) {
  return load_model(golden_path(name));
}

}  // namespace qkscope
