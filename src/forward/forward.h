// The forward pass: whole sequences go through the network layer by layer.
#pragma once

#include "device/backend.h"
#include "qkscope/forward.h"

namespace qkscope {

// Runs the batch and shows the observer what it wants; stops after the last wanted stage, and runs
// the end of the network only for the rows that are wanted there. Sequences in a batch do not see
// each other; on the CPU each gives bit for bit what it gives alone.
void forward(Backend& backend, const Batch& batch, Observer& observer);

// The same on the CPU.
void forward(const LoadedCheckpoint& model, const Batch& batch, Observer& observer);

}  // namespace qkscope
