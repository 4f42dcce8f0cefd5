// Vector loops over keys, compiled for every CPU target: attention statistics of one query, and the
// online softmax of a panel of queries. Sums use 16 interleaved lanes added in one fixed order, so
// results are bit-identical on every target with FMA.
#pragma once

#include <cstdint>

namespace qkscope::keys {

// Arrays over keys are padded with weights of 0 to a multiple of this length.
inline constexpr std::int64_t kPadding = 16;

inline constexpr int kUnitBits = 40;  // fixed-point weights have units of 2^-40
inline constexpr std::int32_t kBins = 64;

// Log-sum-exp of a row as a sum of two floats, so that score - lse is accurate near 0.
struct HighLowLogSumExp {
  explicit HighLowLogSumExp(double lse)
      : high(static_cast<float>(lse)), low(static_cast<float>(lse - static_cast<double>(high))) {}
  float high;
  float low;
};

// p = exp(score - lse) for each of n keys.
void compute_attention_weights(const float* scores, std::int64_t n, HighLowLogSumExp lse, float* p);

float sum_vectorized(const float* x, std::int64_t count);

// Sums a range of weights. Short ranges, which are the most frequent, are added sequentially.
inline float sum_attention_weights(const float* x, std::int64_t count) {
  if (count >= kPadding) return sum_vectorized(x, count);
  float total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += x[i];
  return total;
}

// Attention scores of one query for a range of consecutive keys.
struct ScoreSegment {
  const float* scores;  // (keys)
  std::int64_t keys;
  float distance;  // distance of the first key to the query; decreases by 1 per key
};
struct ScoreSegmentSums {
  float mass;      // sum of p
  float entropy;   // sum of -p ln p
  float distance;  // sum of p (i - j)
};
// Computes the sums, each key's weight p, and its histogram bin min(floor(-2 log2 p), kBins - 1).
ScoreSegmentSums sum_segment_weights(const ScoreSegment& segment, HighLowLogSumExp lse, float* p,
                                     std::int32_t* bins);

// Converts attention weights p to fixed point, `units` of 2^-40, and adds these to key_sums.
// Shapes: (keys), a multiple of kPadding.
void add_fixed_point_weights(const float* p, std::int64_t keys, std::int64_t* units,
                             std::int64_t* key_sums);

// Sums that give the KL divergence between one query's attention to original and replaced keys.
struct KlDivergenceSums {
  float difference;  // sum of p (score - replaced)
  float highest;     // maximum of the replaced scores
  float sum;         // sum of exp(replaced - highest)
};
KlDivergenceSums compute_kl_divergence_sums(const float* p, const float* scores,
                                            const float* replaced, std::int64_t keys);

// Input of the online softmax of attention: scores of one block of keys for `columns` queries, the
// column count of the gemm.h tile. A column is one query of one head. Keys count from the start of
// the block: column c sees [first[c], end[c]), and all see [all_first, all_end).
struct ScorePanel {
  float* scores;  // (keys, columns) scores; replaced by weights
  std::int64_t keys;
  std::int64_t columns;
  const float* first;  // (columns)
  const float* end;    // (columns)
  std::int64_t all_first;
  std::int64_t all_end;
  float* highest;  // (columns) running maximum; -infinity before the first visible key
  float* sum;      // (columns) running sum of exp(score - highest)
  float* z;        // (z_rows, columns) running weighted sum of values
  std::int64_t z_rows;
  std::int64_t used = columns;  // columns that are needed; whole vectors beyond may stay unchanged
};

// Replaces scores by exp(score - highest), 0 for masked keys, updates highest and sum, and rescales
// z. The sum of a block uses 16 lanes, key k in lane k % 16, added in one fixed order.
void update_softmax(const ScorePanel& panel);

}  // namespace qkscope::keys
