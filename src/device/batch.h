// Token sequences that run together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/sequence.h"
#include "qkscope/model.h"

namespace qkscope {

struct Batch {
  std::vector<std::int32_t> ids;    // (rows) all sequences one after another
  std::vector<Sequence> sequences;  // one per sequence

  std::int64_t rows() const { return static_cast<std::int64_t>(ids.size()); }
  std::int64_t longest() const;

  void add(std::span<const std::int32_t> sequence);
};

// Where row `row` of the batch lies among those that still run (ascending; empty: all run).
std::int64_t running_row(std::span<const std::int64_t> kept, std::int64_t row);

// Every id must be a row of the embedding and every sequence must have a token.
void check_batch(const Batch& batch, const ModelConfig& model);

}  // namespace qkscope
