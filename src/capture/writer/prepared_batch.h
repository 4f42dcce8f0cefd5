// Examples that run in one forward pass, with the token positions that the capture keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "capture/format/manifest.h"
#include "capture/format/segment.h"
#include "qkscope/forward.h"

namespace qkscope {

// A text, or a chunk of a text.
struct Example {
  ExampleRecord record;
  std::vector<std::int32_t> ids;
  std::vector<std::string> token_strings;  // (ids) such as "Ġthe", or empty when not captured
};

// Sampled positions of one group of heads.
struct HeadGroupSample {
  std::vector<std::int32_t> positions;  // sequence after sequence, ascending in each
  std::vector<std::int64_t> rows;       // (positions) row in the batch
  std::vector<std::size_t> ends;        // (sequences) end of each sequence in `positions`
};

struct PreparedBatch {
  std::vector<Example> examples;
  Batch batch;                           // of the examples with at least one token
  std::vector<std::size_t> sequence;     // (sequences) index into `examples`
  std::vector<HeadGroupSample> samples;  // (groups of the manifest)

  std::int64_t tokens() const { return batch.rows(); }
};

// Samples the positions of every head group of the manifest.
PreparedBatch prepare_batch(const Manifest& manifest, std::vector<Example> examples);

}  // namespace qkscope
