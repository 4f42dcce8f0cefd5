// Keys of a text that are eligible at each query point: before the point, within the window.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/methods/kernels/key_pairs.h"
#include "base/core/numbers.h"

namespace qkscope {

// Keys [begin, end) of one text, from which pairs are formed.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t pair_count() const { return (end - begin) * (end - begin - 1) / 2; }
  // Returns the pair of keys with number `index`, counting pairs i < j in the order (0, 1), (0, 2),
  // (1, 2), (0, 3), ...
  KeyPair pair(std::int64_t index) const;
};

// Keys that are eligible at a query point: those in earlier bins and, with a sliding window, after
// position - window. Both ends of the range ascend with the point, so a pair of keys i < j of one
// text is eligible at points [first_eligible_point(j), eligible_point_end(i)).
class EligibleKeys {
 public:
  EligibleKeys(const SortedKeys& keys, const QueryPoints& points,
               std::optional<std::int32_t> window);

  KeyRange at(std::int64_t example, std::int64_t point) const {
    const CompactKeyRange& range = ranges_[as_index(example * points_ + point)];
    return {range.begin, range.end};
  }
  std::int64_t first_eligible_point(std::int64_t key) const { return first_[as_index(key)]; }
  std::int64_t eligible_point_end(std::int64_t key) const { return end_[as_index(key)]; }

 private:
  struct CompactKeyRange {  // a KeyRange in half the memory
    std::int32_t begin = 0;
    std::int32_t end = 0;
  };

  std::int64_t points_;
  std::vector<CompactKeyRange> ranges_;  // (examples, points)
  std::vector<std::int64_t> first_;      // (keys)
  std::vector<std::int64_t> end_;        // (keys)
};

}  // namespace qkscope
