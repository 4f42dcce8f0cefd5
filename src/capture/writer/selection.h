// Chooses what a capture stores: heads (by a filter and a seeded random draw) and token positions.
// Also defines batches of examples with their sampled positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/io/json.h"
#include "capture/format/buckets.h"
#include "capture/format/manifest.h"
#include "capture/format/segment.h"
#include "qkscope/capture.h"
#include "qkscope/forward.h"

namespace qkscope {

// The selected query heads and the key heads that they read.
struct HeadSelection {
  struct LayerHeads {
    std::set<std::int64_t> queries;
    std::set<std::int64_t> keys;
  };
  // Selected heads by layer. Cross-attention layers take part in the draw, so that it agrees with
  // published captures, but heads drawn there produce no vectors and are left out.
  std::map<std::int64_t, LayerHeads> layers;
  std::vector<std::int64_t> eligible_layers;  // layers with heads to draw from
  std::vector<std::int64_t> excluded_layers;  // sliding-window layers under full_attention_only
  Json metadata;  // keys head_sampling_* of the state file and the dataset card
};

// Throws a bad-input error for layers or heads that do not exist, or if no head is left.
HeadSelection select_heads(const ModelConfig& model, const HeadFilter& filter);

// Returns the seed for sampling positions of one example, layer and kind ('q' or 'k').
std::uint64_t sampling_seed(std::int64_t example_key, std::int64_t layer, char kind);

// Samples token positions of an example. The positions are bit-identical to those of qk-sniffer.
class PositionSampler {
 public:
  explicit PositionSampler(const SamplerOptions& options);

  std::int32_t bucket_of(std::int64_t position) const { return buckets_.bucket_of(position); }

  // Returns the sampled positions in [0, length), ascending. If there are more than max_rows, keeps
  // those with the smallest hash of seed and position, so that the result is deterministic.
  std::vector<std::int32_t> sample(std::uint64_t seed, std::int64_t length) const;

 private:
  SamplerOptions options_;
  PositionBuckets buckets_;
};

// ---- Examples of one forward pass, with the token positions that the capture stores ----

// A text or a chunk of a text, tokenized.
struct Example {
  ExampleRecord record;
  std::vector<std::int32_t> ids;
  std::vector<std::string> token_strings;  // (ids) such as "Ġthe", or empty when not captured
};

struct SampledPositions {
  std::vector<std::int32_t> positions;  // sequence after sequence, ascending in each
  std::vector<std::int64_t> rows;       // (positions) row in the batch
  std::vector<std::size_t> ends;        // (sequences) end of each sequence in `positions`
};

struct ExampleBatch {
  std::vector<Example> examples;
  Batch batch;                            // of the examples with at least one token
  std::vector<std::size_t> sequence;      // (sequences) index into `examples`
  std::vector<SampledPositions> samples;  // one sample per head group of the manifest

  std::int64_t token_count() const { return batch.rows(); }
};

// Samples the token positions to capture, for every head group in the manifest.
ExampleBatch prepare_batch(const Manifest& manifest, std::vector<Example> examples);

}  // namespace qkscope
