// The forward pass over whole sequences, layer by layer.
#pragma once

#include <cstdint>

#include "engine/device/backend.h"
#include "qkscope/forward.h"

namespace qkscope {

// Accumulates statistics of every row during a pass, by calling steps of the backend. A pass with
// statistics runs all rows through all layers, up to the last stage that the statistics need.
class LayerStatistics {
 public:
  virtual ~LayerStatistics() = default;
  // Returns true if after_attention() is needed. Attention then runs in every layer, also in the
  // last one, whose output no later layer reads.
  virtual bool wants_attention() const = 0;
  virtual void before_rotation(Backend& backend,
                               std::int64_t layer) = 0;  // q, k and v are available
  virtual void after_rotation(Backend& backend,
                              std::int64_t layer) = 0;  // rotated q and k are available
  virtual void after_attention(Backend& backend, std::int64_t layer) = 0;  // row sums are available
};

// Runs a batch and shows the observer the hook points it wants. Stops after the last wanted stage,
// and runs the end of the network only for the wanted rows. Tokens attend only to their own
// sequence; on the CPU the results of a sequence are bit-identical to a separate run.
void forward(Backend& backend, const Batch& batch, Observer& observer,
             const RunOptions& options = {});

// Runs a batch with a KV cache and appends keys and values to the cache; all layers run. After an
// exception the cached lengths are unchanged.
void forward(Backend& backend, const Batch& batch, Observer& observer, KeyValueStore& store);

void forward(Backend& backend, const Batch& batch, Observer& observer, LayerStatistics& statistics);

// Runs a batch on the CPU with a new backend.
void forward(const LoadedCheckpoint& model, const Batch& batch, Observer& observer,
             const RunOptions& options = {});

// Observer that requests no hook points, for passes run only for statistics or timing.
class NoObserver : public Observer {
 public:
  bool wants(HookPoint) const override { return false; }
  void see(HookPoint, ConstTensorView) override {}
};

}  // namespace qkscope
