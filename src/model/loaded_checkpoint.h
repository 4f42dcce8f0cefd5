// A checkpoint that is ready to run.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "io/json.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace qkscope {

struct LoadedCheckpoint {
  Checkpoint checkpoint;  // keeps the mapped weights alive
  ModelConfig config;
  ModelWeights weights;
  std::vector<Tensor> folded = {};  // weights that are no longer the file's; see fold_norms.h
};

// `overrides` are merged into config.json before it is understood (null or an object).
LoadedCheckpoint load_model(const std::string& folder, const Json& overrides = nullptr);

}  // namespace qkscope
