// What a run would give, from the configuration and the tokenized lengths alone: positions are
// drawn as the run draws them, so the number of rows is exact.
#pragma once

#include <cstdint>

#include "capture/capture_plan.h"
#include "capture/example_source.h"

namespace qkscope {

struct DryRun {
  std::int64_t examples = 0;
  std::int64_t truncated = 0;
  std::int64_t tokens = 0;
  std::int64_t longest = 0;           // tokens
  std::int64_t files = 0;             // head files
  std::int64_t rows = 0;              // over all heads
  std::int64_t bytes = 0;             // of those rows before compression
  std::int64_t largest_batch = 0;     // tokens
  std::int64_t weight_bytes = 0;      // in memory at a time; on the CPU mapped from the checkpoint
  std::int64_t activation_bytes = 0;  // of the largest batch
};

DryRun dry_run(const CapturePlan& plan, const Shard& shard);

// One object: heads by layer, eligible and excluded layers, and the numbers above.
Json to_json(const CapturePlan& plan, const DryRun& dry);

}  // namespace qkscope
