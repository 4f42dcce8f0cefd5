// A checkpoint that is ready to run.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/json.h"
#include "model/config.h"
#include "model/weights.h"

namespace qkscope {

struct Model {
  Checkpoint checkpoint;  // keeps the mapped weights alive
  ModelConfig config;
  ModelWeights weights;
  std::vector<Tensor> folded = {};  // weights that are no longer the file's; see fold_norms.h
};

// `overrides` are merged into config.json before it is understood (null or an object).
Model load_model(const std::string& folder, const Json& overrides = nullptr);

}  // namespace qkscope
