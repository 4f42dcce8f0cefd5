// Which positions a bucket number stands for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/methods/moments.h"
#include "capture/format/buckets.h"

namespace qkscope {

// Numbers that come often, and how they are numbered from 0 in ascending order.
struct DistinctNumbers {
  explicit DistinctNumbers(std::span<const std::int32_t> all);

  std::vector<std::int32_t> numbers;  // ascending
  std::vector<std::int32_t> place;    // (all): where each is among them
};

class BucketRanges {
 public:
  // As the capture's sampler laid them out.
  explicit BucketRanges(const SamplerOptions& sampler) : known_(sampler) {}
  // Guessed, where nothing says it: equal buckets where floor(position / size) explains every row,
  // else buckets that double (floor(log2(position + 1))).
  BucketRanges(const Rows& queries, const Rows& keys);

  PositionRange range(std::int32_t bucket) const;
  // Tokens per bucket where all have the same; 0 where they double.
  std::int64_t equal_size() const;

  // Whether some query of `query_bucket` reaches some key of `key_bucket` through a window of that
  // many tokens (a query sees itself and the window - 1 keys before it).
  bool reaches(std::int32_t query_bucket, std::int32_t key_bucket, std::int64_t window) const;

 private:
  std::optional<Buckets> known_;
  std::int64_t size_ = 0;          // guessed: tokens per bucket; 0: buckets double
  std::int32_t first_bucket_ = 0;  // of doubling buckets: it starts at position 0
};

}  // namespace qkscope
