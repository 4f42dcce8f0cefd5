// Position ranges of capture buckets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/methods/moments.h"
#include "capture/format/buckets.h"

namespace qkscope {

// Distinct values of a list in ascending order, and for every list element the index of its value.
struct DistinctIntegers {
  explicit DistinctIntegers(std::span<const std::int32_t> all);

  std::vector<std::int32_t> numbers;  // ascending
  std::vector<std::int32_t> place;    // (elements): index into `numbers`
};

class BucketRanges {
 public:
  explicit BucketRanges(const SamplerOptions& sampler) : known_(sampler) {}
  // Infers buckets from the rows of a capture without metadata: equal buckets if floor(position /
  // size) explains every row, else doubling buckets floor(log2(position + 1)).
  BucketRanges(const RowsView& queries, const RowsView& keys);

  PositionRange range(std::int32_t bucket) const;
  // Returns the number of tokens per bucket, or 0 if buckets double in size.
  std::int64_t equal_bucket_size() const;

  // Returns whether any query in `query_bucket` attends to any key in `key_bucket` with a sliding
  // window of `window` tokens (a query sees itself and the window - 1 keys before it).
  bool window_reaches(std::int32_t query_bucket, std::int32_t key_bucket,
                      std::int64_t window) const;

 private:
  std::optional<PositionBuckets> known_;
  std::int64_t size_ = 0;          // inferred tokens per bucket; 0: doubling buckets
  std::int32_t first_bucket_ = 0;  // first doubling bucket, which starts at position 0
};

}  // namespace qkscope
