// A checkpoint that is ready to run: its configuration, and its weights bound to the mapped files.
#pragma once

#include <string>
#include <vector>

#include "base/io/json_fwd.h"
#include "engine/model/model_config.h"
#include "input/checkpoint/checkpoint.h"
#include "qkscope/model.h"

namespace qkscope {

struct LoadedCheckpoint {
  Checkpoint checkpoint;  // keeps the mapped weights alive
  ModelConfig config;
  ModelWeights weights;
  std::vector<Tensor> folded = {};  // weights that are no longer the file's
};

LoadedCheckpoint load_model(const std::string& folder);
// `overrides` are merged into config.json before it is understood (null or an object).
LoadedCheckpoint load_model(const std::string& folder, const Json& overrides);

// Norms and biases are small and are widened here; where a norm multiplies by 1 + weight, the one
// is added. Matrices stay in the mapped file. Every name and shape is checked first.
ModelWeights bind_weights(const ModelConfig& model, const Checkpoint& checkpoint);

// The same check without the weights: names, shapes and types fit the configuration. Returns the
// bytes that blocks with scales will take as float32, beside the files.
std::uint64_t check_weights(const ModelConfig& model, const Checkpoint& checkpoint);

// Moves norm weights into the matrices that read the normalised vectors. Afterwards the norms
// before attention, MLP and output embedding multiply by one, and q, k, v, gate, up and the output
// embedding carry their weights, in float32 of their own; those that read a LayerNorm are also
// centred, as TransformerLens centres them. The model computes the same up to rounding. Norms on q
// and k and on what a block adds have no matrix after them and stay.
void fold_norms(LoadedCheckpoint& model);

}  // namespace qkscope
