// Sample of the queries of one document and head, for all-keys statistics at a fraction of their
// cost.
#pragma once

#include <cstdint>
#include <vector>

namespace qkscope {

// Queries are drawn in blocks of consecutive positions, because kernels process such blocks. A
// document of B blocks has round(fraction * B) sampled blocks, at least one. The inclusion
// probability of a block is proportional to the log-uniform mass of its positions, ln((end + 1) /
// (begin + 1)), and at most 1. The blocks are drawn by systematic sampling with unequal
// probabilities (Madow 1949), one uniform number per document and head.
constexpr std::int64_t kSampledQueries = 128;

struct QuerySample {
  double fraction = 1;  // of the queries; 1: all of them
  std::int64_t seed = 0;

  bool takes_all() const { return fraction >= 1; }
  // Returns one weight per block of the document: the inverse of the inclusion probability
  // (Horvitz-Thompson estimator) if the block is drawn, else 0. `document` is a key of the text
  // that does not depend on its batch.
  std::vector<float> block_weights(std::int64_t length, std::int64_t document, std::int64_t layer,
                                   std::int64_t head) const;
};

}  // namespace qkscope
