// The forward pass: whole sequences go through the network layer by layer.
#pragma once

#include "forward/batch.h"
#include "forward/hooks.h"
#include "model/model.h"

namespace qkscope {

// Runs the batch and shows the observer what it wants; stops after the last wanted stage. Sequences
// in a batch do not see each other, and each gives bit for bit what it gives alone.
void forward(const Model& model, const Batch& batch, Observer& observer);

// Bytes of activations that a run of this many rows needs on top of the weights.
std::int64_t activation_bytes(const ModelConfig& model, std::int64_t rows);

}  // namespace qkscope
