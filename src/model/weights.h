// Binds the weights of a model to the tensors of its checkpoint.
#pragma once

#include "checkpoint/checkpoint.h"
#include "qkscope/model.h"

namespace qkscope {

// Norms and biases are small and are widened here; where a norm multiplies by 1 + weight, the one
// is added. Matrices stay in the mapped file. Every name and shape is checked first.
ModelWeights bind_weights(const ModelConfig& model, const Checkpoint& checkpoint);

}  // namespace qkscope
