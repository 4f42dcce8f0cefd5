// All-keys statistics (group C) of one head and document: columns that need the scores of all keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops/head_scores.h"
#include "engine/ops/replaced_keys.h"
#include "engine/statistics/attention_sums.h"

namespace qkscope {

// Histogram of the attention weights of one query: count and mass of keys in bins of half octaves.
class WeightHistogram {
 public:
  static constexpr std::int32_t kPaddingBin = keys::kBins;  // bin for padding
  static constexpr std::int64_t kMostKeys = std::int64_t{1} << 21;

  void clear() { std::fill(std::begin(cells_), std::end(cells_), 0); }

  // Each bin is one integer: the low bits hold the mass in units of 2^-40, the high bits the key
  // count.
  void add(std::int32_t bin, std::int64_t units) { cells_[bin] += units + kOneKey; }

  // Lower and upper bound.
  struct Bounds {
    double low;
    double high;
  };

 private:
  friend class HistogramBounds;

  static constexpr int kMassBits = keys::kUnitBits + 2;  // room for a total mass of 1
  static constexpr std::int64_t kOneKey = std::int64_t{1} << kMassBits;

  std::int64_t cells_[keys::kBins + 1] = {};
};

// Bounds on the number of keys that hold a given mass, and on the mass of the top keys, from a
// histogram.
class HistogramBounds {
 public:
  explicit HistogramBounds(const WeightHistogram& bins) {
    constexpr double kUnit = 1.0 / static_cast<double>(std::int64_t{1} << keys::kUnitBits);
    for (std::size_t b = 0; b < keys::kBins; ++b) {
      const auto cell = bins.cells_[b];
      const double count = static_cast<double>(cell >> WeightHistogram::kMassBits);
      const double mass = static_cast<double>(cell & (WeightHistogram::kOneKey - 1)) * kUnit;
      keys_[b + 1] = keys_[b] + count;
      held_[b + 1] = held_[b] + mass;
    }
  }

  WeightHistogram::Bounds keys_of_share(double share) const {
    const auto b = first_with(held_, share);
    if (b == keys::kBins) return {keys_[b], keys_[b]};
    const double missing = share - held_[b];
    const double most = keys_[b + 1] - keys_[b];
    // Lower bound: every key of the bin has the largest weight of the bin. Upper bound: the keys
    // taken first, which are the largest, have at least the average weight.
    const double average = (held_[b + 1] - held_[b]) / most;
    const double high = keys_[b] + std::min(most, std::max(1.0, std::ceil(missing / average)));
    return {std::min(high, keys_[b] + std::max(1.0, std::ceil(missing / upper(b)))), high};
  }

  WeightHistogram::Bounds mass_of_top(std::int64_t top) const {
    const auto b = first_with(keys_, static_cast<double>(top));
    if (b == keys::kBins) return {held_[b], held_[b]};
    const double taken = static_cast<double>(top) - keys_[b];
    const double mass = held_[b + 1] - held_[b];
    const double part = mass * taken / (keys_[b + 1] - keys_[b]);
    return {held_[b] + part, held_[b] + std::max(part, std::min(mass, taken * upper(b)))};
  }

 private:
  // Index of the first bin at which the cumulative sums reach a value; kBins if none does.
  static std::size_t first_with(const double (&sums)[keys::kBins + 1], double value) {
    std::size_t b = 0;
    while (b < keys::kBins && sums[b + 1] < value) ++b;
    return b;
  }
  static double upper(std::size_t bin) { return std::exp2(-0.5 * static_cast<double>(bin)); }

  double keys_[keys::kBins + 1] = {};  // cumulative key count
  double held_[keys::kBins + 1] = {};  // cumulative mass
};

// Variants of the keys of one key head, shared by the query heads of its group.
struct KeyVariants {
  std::vector<std::vector<float>> replaced;  // (replacements) of (keys, dim)
  std::vector<std::vector<float>>
      kept;  // (kept sets) masks of (keys), 1 or 0; empty if the rule needs none
};

// Computes the all-keys columns of a head, block by block.
class AllKeysColumns {
 public:
  // All references must outlive the object. key_sums points to the sum of key 0; keys are n_heads
  // apart.
  AllKeysColumns(const HeadInput& in, const AttentionRequest& request, const KeyVariants& keys,
                 std::int64_t* key_sums)
      : in_(in), request_(request), layout_(request.layout), keys_(keys), key_sums_(key_sums) {}

  // Computes the all-keys columns of queries [begin, end), which `queries` holds. values: (queries,
  // columns), where the all-keys columns are 0 on entry.
  void add(QueryTile& queries, std::int64_t begin, std::int64_t end, double* values);

 private:
  static constexpr std::int64_t kRows = 4;    // queries per histogram loop
  static constexpr std::int64_t kKeys = 256;  // keys per block

  // Running KL divergence of one query from its scores with replaced keys.
  struct Divergence {
    double difference = 0;  // sum p (s - s')
    double highest = 0;     // maximum of s'
    double sum = 0;         // sum of exp(s' - highest); 0 before the first key
  };
  struct Range {  // [begin, end)
    std::int64_t begin;
    std::int64_t end;
  };

  void add_keys(Range block, double* values);
  void add_row(std::int64_t i, std::int64_t slot, Range block, double* v);
  void compare_row(std::int64_t i, const float* p, Range block, Range seen);
  void keep_row(std::int64_t i, const float* p, Range block, Range seen, double* v) const;
  void count(std::int64_t query, std::int64_t width);
  void finish(std::int64_t i, double* v) const;

  const HeadInput& in_;
  const AttentionRequest& request_;
  const ColumnLayout& layout_;
  const KeyVariants& keys_;
  std::int64_t* key_sums_;
  Range queries_ = {0, 0};
  ScoreBlock scores_;
  std::vector<ScoreBlock> replaced_scores_;
  std::vector<WeightHistogram> bins_;    // (queries rounded up to kRows)
  std::vector<Divergence> divergences_;  // (queries, replacements)
  std::int64_t block_sums_[kKeys] = {};  // fixed-point sums of the keys of the block
  // Weights, bins and fixed-point weights of kRows queries; padding has weight 0 and kPaddingBin.
  float p_[kRows][kKeys] = {};
  std::int32_t bin_[kRows][kKeys] = {};
  std::int64_t units_[kRows][kKeys] = {};
};

}  // namespace qkscope
