// What looks at the forward passes of a capture beside it: statistics over every token (collect).
#pragma once

#include <cstdint>

#include "capture/run/batch_reader.h"
#include "engine/forward/forward.h"

namespace qkscope {

// Capture and companion save on their own, so after a kill one of them may have more examples than
// the other: those run again for the other alone.
class PassCompanion {
 public:
  virtual ~PassCompanion() = default;

  virtual std::int64_t examples() const = 0;  // of this shard that it has
  virtual void start(Backend& backend) = 0;   // once, before the first pass
  // Looks on while the batch runs; take() comes after the pass.
  virtual LayerStatistics& look_at(const PreparedBatch& batch) = 0;
  virtual void take(const PreparedBatch& batch) = 0;
  virtual void run_alone(const PreparedBatch& batch) = 0;
  // Everything so far is to be kept; `all`: there are no more examples.
  virtual void finish(bool all) = 0;
};

}  // namespace qkscope
