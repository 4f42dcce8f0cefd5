// Examples that run together, with all that can be known before they run: the sequences and the
// sampled positions. It is made while the batch before runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "capture/capture_plan.h"
#include "capture/example_source.h"
#include "qkscope/forward.h"

namespace qkscope {

// What is kept of one group of heads.
struct GroupSample {
  std::vector<std::int32_t> positions;  // ascending in each sequence, all sequences in order
  std::vector<std::int64_t> rows;       // (positions) of the batch
  std::vector<std::size_t> ends;        // (sequences) where the positions of each end
};

struct PreparedBatch {
  std::vector<Example> examples;
  Batch batch;                        // of the examples that have a token
  std::vector<std::size_t> sequence;  // (sequences) its place among the examples
  std::vector<GroupSample> samples;   // one per group of the manifest

  std::int64_t tokens() const { return batch.rows(); }
};

PreparedBatch prepare_batch(const CapturePlan& plan, std::vector<Example> examples);

}  // namespace qkscope
