#include "analysis/methods/kernels/bucket_ranges.h"

#include <algorithm>
#include <array>
#include <limits>

namespace qkscope {

DistinctNumbers::DistinctNumbers(std::span<const std::int32_t> all) {
  // Numbers that were met lately are found without a search.
  struct Met {
    std::int32_t number = 0;
    std::int32_t place = -1;
  };
  std::array<Met, 256> met;
  const auto lately = [&](std::int32_t number) -> Met& {
    return met[static_cast<std::uint32_t>(number) % met.size()];
  };
  for (const auto number : all) {
    if (lately(number).place >= 0 && lately(number).number == number) continue;
    lately(number) = {number, 0};
    const auto at = std::lower_bound(numbers.begin(), numbers.end(), number);
    if (at == numbers.end() || *at != number) numbers.insert(at, number);
  }
  met = {};
  place.reserve(all.size());
  for (const auto number : all) {
    Met& entry = lately(number);
    if (entry.place < 0 || entry.number != number)
      entry = {number,
               static_cast<std::int32_t>(std::lower_bound(numbers.begin(), numbers.end(), number) -
                                         numbers.begin())};
    place.push_back(entry.place);
  }
}

BucketRanges::BucketRanges(const Rows& queries, const Rows& keys) {
  std::int64_t smallest = 1;
  std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  first_bucket_ = std::numeric_limits<std::int32_t>::max();
  for (const Rows* rows : {&queries, &keys}) {
    for (std::size_t i = 0; i < rows->position.size(); ++i) {
      const std::int64_t position = rows->position[i];
      const std::int64_t bucket = rows->bucket[i];
      first_bucket_ = std::min(first_bucket_, rows->bucket[i]);
      if (bucket >= 0) smallest = std::max(smallest, position / (bucket + 1) + 1);
      if (bucket > 0) largest = std::min(largest, position / bucket);
    }
  }
  if (smallest > largest) return;
  // Several sizes may fit what was sampled: take the roundest, the one with most factors of two.
  size_ = smallest;
  for (std::int64_t unit = 2; unit <= largest; unit *= 2) {
    const std::int64_t rounded = (smallest + unit - 1) / unit * unit;
    if (rounded > largest) break;
    size_ = rounded;
    if (unit > std::numeric_limits<std::int32_t>::max()) break;
  }
}

PositionRange BucketRanges::range(std::int32_t bucket) const {
  if (known_) return known_->positions(bucket);
  if (size_ > 0) return {bucket * size_, (bucket + std::int64_t{1}) * size_};
  const auto power = [](std::int32_t b) { return std::int64_t{1} << std::clamp(b, 0, 40); };
  return {bucket <= first_bucket_ ? 0 : power(bucket) - 1, power(bucket + 1) - 1};
}

std::int64_t BucketRanges::equal_size() const {
  if (!known_) return size_;
  const auto first = known_->positions(0);
  const auto second = known_->positions(1);
  const auto size = first.end - first.begin;
  return second.end - second.begin == size ? size : 0;
}

bool BucketRanges::reaches(std::int32_t query_bucket, std::int32_t key_bucket,
                           std::int64_t window) const {
  return range(key_bucket).end - 1 > range(query_bucket).begin - window;
}

}  // namespace qkscope
