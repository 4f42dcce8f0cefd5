// Loops over the keys of one query for statistics of attention, compiled for every CPU target. Sums
// run in 16 interleaved lanes that are folded in one order: the same bits on every target that can
// fuse.
#pragma once

#include <cstdint>

namespace qkscope::keys {

// Rows of keys are filled up to whole multiples of this with weights of 0.
inline constexpr std::int64_t kPadding = 16;
constexpr std::int64_t padded(std::int64_t keys) {
  return (keys + kPadding - 1) / kPadding * kPadding;
}

inline constexpr int kUnitBits = 40;  // weights as integers: units of 2^-40
inline constexpr std::int32_t kBins = 64;

// The log-sum-exp of a row in two floats: score - high is as good as exact where it matters, near
// 0.
struct LogSum {
  explicit LogSum(double lse)
      : high(static_cast<float>(lse)), low(static_cast<float>(lse - static_cast<double>(high))) {}
  float high;
  float low;
};

// p = exp(score - lse)
void weights(const float* scores, std::int64_t keys, LogSum lse, float* p);

float sum(const float* x, std::int64_t count);

// The same, where most stretches are of a few keys: those are added one after another.
inline float stretch_sum(const float* x, std::int64_t count) {
  if (count >= kPadding) return sum(x, count);
  float total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += x[i];
  return total;
}

// Consecutive keys of a row.
struct Segment {
  const float* scores;  // (keys)
  std::int64_t keys;
  float distance;  // of the query and the first key; 1 less for each that follows
};
struct SegmentSums {
  float mass;      // sum of p
  float entropy;   // sum of -p ln p
  float distance;  // sum of p (i - j)
};
// Also leaves p (keys) and its bin (keys): floor(-2 log2 p), at most the last one.
SegmentSums weigh(const Segment& segment, LogSum lse, float* p, std::int32_t* bins);

// units = p in units of 2^-40, key_sums += units; `keys` is padded.
void add_units(const float* p, std::int64_t keys, std::int64_t* units, std::int64_t* key_sums);

struct ReplacedSums {
  float difference;  // sum of p (score - replaced)
  float highest;     // of the replaced scores
  float sum;         // of exp(replaced - highest)
};
ReplacedSums compare(const float* p, const float* scores, const float* replaced, std::int64_t keys);

}  // namespace qkscope::keys
