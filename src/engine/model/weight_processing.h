// Rewritings of the weights that leave the probabilities of the next token as they are, as
// TransformerLens does them when it loads a model. Each is done in float32, in tensors that the
// model then owns, and is refused where a family would compute something else afterwards.
#pragma once

#include "engine/model/loaded_checkpoint.h"

namespace qkscope {

// Takes the mean off what embeddings, attention and MLP write into the residual stream. Every
// reader of the stream is a LayerNorm, which takes it off anyhow.
void center_writing_weights(LoadedCheckpoint& model);

// Takes the mean over the vocabulary off the output embedding: all logits of a position change by
// the same number.
void center_unembed(LoadedCheckpoint& model);

// Moves biases of values into the bias of the output projection: a pattern adds up to one.
void fold_value_biases(LoadedCheckpoint& model);

}  // namespace qkscope
