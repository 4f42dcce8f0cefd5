// Weight rewrites of TransformerLens that preserve next-token probabilities, in float32 on copies
// that the model owns. Throws bad input if a rewrite would change the model.
#pragma once

#include "engine/model/loaded_checkpoint.h"

namespace qkscope {

// Moves norm weights into the matrices that read the normalised vectors: q, k, v, gate, up, router,
// experts and output embedding. The norms then multiply by one. Readers of a LayerNorm are centred,
// as in TransformerLens. Norms of q and k and of block outputs stay.
void fold_norms(LoadedCheckpoint& model);

// Subtracts the mean from everything that embeddings, attention and MLP write into the residual
// stream. Requires LayerNorm, which removes the mean anyway.
void center_writing_weights(LoadedCheckpoint& model);

// Subtracts the mean over the vocabulary from the output embedding.
void center_unembed(LoadedCheckpoint& model);

// Moves value biases into the bias of the output projection; attention weights sum to one.
void fold_value_biases(LoadedCheckpoint& model);

}  // namespace qkscope
