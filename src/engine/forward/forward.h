// The forward pass: whole sequences go through the network layer by layer.
#pragma once

#include <cstdint>

#include "engine/device/backend.h"
#include "qkscope/forward.h"

namespace qkscope {

// Adds up statistics of every row by the steps of the backend while a pass runs. A pass with
// statistics runs all rows through all layers, up to what is added up in the last one.
class LayerStatistics {
 public:
  virtual ~LayerStatistics() = default;
  // Whether after_attention() is to be called: the pass then goes through the attention of every
  // layer.
  virtual bool wants_attention() const = 0;
  virtual void before_rotation(Backend& backend, std::int64_t layer) = 0;  // q, k and v
  virtual void after_rotation(Backend& backend, std::int64_t layer) = 0;   // q and k
  virtual void after_attention(Backend& backend, std::int64_t layer) = 0;  // with row sums
};

// Runs the batch and shows the observer what it wants; stops after the last wanted stage, and runs
// the end of the network only for the rows that are wanted there. Sequences in a batch do not see
// each other; on the CPU each gives bit for bit what it gives alone.
void forward(Backend& backend, const Batch& batch, Observer& observer,
             const RunOptions& options = {});

// The same with keys and values of earlier passes, which this one adds to: all layers run, whatever
// is wanted. Where it ends in an exception, the sequences have in the store what they had before.
void forward(Backend& backend, const Batch& batch, Observer& observer, KeyValueStore& store);

// The same with statistics.
void forward(Backend& backend, const Batch& batch, Observer& observer, LayerStatistics& statistics);

// The same on the CPU.
void forward(const LoadedCheckpoint& model, const Batch& batch, Observer& observer,
             const RunOptions& options = {});

}  // namespace qkscope
