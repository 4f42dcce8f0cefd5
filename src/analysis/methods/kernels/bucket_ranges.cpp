#include <algorithm>
#include <limits>

#include "analysis/methods/kernels/query_model.h"
#include "base/core/numbers.h"

namespace qkscope {

DistinctIntegers::DistinctIntegers(std::span<const std::int32_t> all)
    : numbers(all.begin(), all.end()) {
  if (all.empty()) return;
  const std::int64_t low = std::ranges::min(all);
  const auto range = as_index(std::ranges::max(all) - low + 1);
  // Lookup table from a number to its index, used only if the range of the numbers is small.
  // Numbers with a large range are sorted instead.
  std::vector<std::int32_t> table(range <= 1 << 16 ? range : 0);
  if (!table.empty()) {
    for (const auto number : all) table[as_index(number - low)] = 1;
    numbers.clear();
    for (std::size_t i = 0; i < range; ++i)
      if (table[i] != 0) {
        table[i] = static_cast<std::int32_t>(numbers.size());
        numbers.push_back(static_cast<std::int32_t>(low + static_cast<std::int64_t>(i)));
      }
  } else {
    std::ranges::sort(numbers);
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  }
  place.reserve(all.size());
  for (const auto number : all)
    place.push_back(table.empty() ? static_cast<std::int32_t>(
                                        std::ranges::lower_bound(numbers, number) - numbers.begin())
                                  : table[as_index(number - low)]);
}

BucketRanges::BucketRanges(const RowsView& queries, const RowsView& keys) {
  std::int64_t smallest = 1;
  std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  first_bucket_ = std::numeric_limits<std::int32_t>::max();
  for (const RowsView* rows : {&queries, &keys}) {
    for (std::size_t i = 0; i < rows->position.size(); ++i) {
      const std::int64_t position = rows->position[i];
      const std::int64_t bucket = rows->bucket[i];
      first_bucket_ = std::min(first_bucket_, rows->bucket[i]);
      if (bucket >= 0) smallest = std::max(smallest, position / (bucket + 1) + 1);
      if (bucket > 0) largest = std::min(largest, position / bucket);
    }
  }
  if (smallest > largest) return;
  // Several bucket sizes (tokens) can fit the rows: choose the one with the most factors of two.
  size_ = smallest;
  for (std::int64_t unit = 2; unit <= largest; unit *= 2) {
    const std::int64_t rounded = (smallest + unit - 1) / unit * unit;
    if (rounded > largest) break;
    size_ = rounded;
    if (unit > std::numeric_limits<std::int32_t>::max()) break;
  }
}

PositionRange BucketRanges::range(std::int32_t bucket) const {
  if (known_) return known_->positions_of_bucket(bucket);
  if (size_ > 0) return {bucket * size_, (bucket + std::int64_t{1}) * size_};
  const auto power = [](std::int32_t b) { return std::int64_t{1} << std::clamp(b, 0, 40); };
  return {bucket <= first_bucket_ ? 0 : power(bucket) - 1, power(bucket + 1) - 1};
}

std::int64_t BucketRanges::uniform_bucket_size() const {
  if (!known_) return size_;
  const auto first = known_->positions_of_bucket(0);
  const auto second = known_->positions_of_bucket(1);
  const auto size = first.end - first.begin;
  return second.end - second.begin == size ? size : 0;
}

bool BucketRanges::window_reaches_bucket(std::int32_t query_bucket, std::int32_t key_bucket,
                                         std::int64_t window) const {
  return range(key_bucket).end - 1 > range(query_bucket).begin - window;
}

}  // namespace qkscope
