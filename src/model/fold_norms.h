// Norm weights moved into the matrices that read the normalised vectors.
#pragma once

#include "model/loaded_checkpoint.h"

namespace qkscope {

// Afterwards the norms before attention, MLP and output embedding multiply by one, and q, k, v,
// gate, up and the output embedding carry their weights, in float32 of their own. The model
// computes the same up to rounding. Norms on q and k and on what a block adds have no matrix after
// them and stay.
void fold_norms(LoadedCheckpoint& model);

}  // namespace qkscope
