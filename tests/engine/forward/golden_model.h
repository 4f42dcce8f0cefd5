// Loads the small models of tests/golden.
#pragma once

#include <string>

#include "engine/forward/forward.h"
#include "paths.h"

namespace qkscope {

inline LoadedCheckpoint load_golden(const std::string& name) {
  return load_unprocessed_checkpoint(golden_path(name));
}

}  // namespace qkscope
