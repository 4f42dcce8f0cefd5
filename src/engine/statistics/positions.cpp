#include "engine/statistics/positions.h"

#include <algorithm>
#include <map>

namespace qkscope {
namespace {

// `count` times the same rows.
ExactPositions times(const ExactPositions& sums, std::int64_t count) {
  return {sums.n * count, sums.t * count,  sums.tt * count,
          sums.u * count, sums.uu * count, sums.tu * count};
}

}  // namespace

DocumentPositions positions_of(std::span<const std::int64_t> lengths, std::int64_t first,
                               std::int64_t bucket_size, std::int64_t buckets) {
  DocumentPositions sums;
  sums.buckets.resize(static_cast<std::size_t>(buckets));
  std::map<std::int64_t, std::int64_t> counts;  // documents of each length
  for (const auto length : lengths) ++counts[length];
  PositionTable table;
  for (const auto& [length, count] : counts) {
    sums.first += times(table.range(0, std::min(first, length)), count);
    sums.body += times(table.range(first, length), count);
    for (std::int64_t bucket = 0; bucket < buckets; ++bucket) {
      const auto end =
          bucket + 1 == buckets ? length : std::min(length, (bucket + 1) * bucket_size);
      sums.buckets[static_cast<std::size_t>(bucket)] +=
          times(table.range(bucket * bucket_size, end), count);
    }
  }
  return sums;
}

}  // namespace qkscope
