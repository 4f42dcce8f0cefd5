#include <algorithm>
#include <cmath>

#include "analysis/methods/kernels/key_pairs.h"

namespace qkscope {

KeyPair KeyRange::nth_pair(std::int64_t index) const {
  auto second = static_cast<std::int64_t>((1 + std::sqrt(1 + 8 * static_cast<double>(index))) / 2);
  while (second * (second - 1) / 2 > index) --second;
  while ((second + 1) * second / 2 <= index) ++second;
  return {begin + index - second * (second - 1) / 2, begin + second};
}

EligibleKeys::EligibleKeys(const SortedKeys& keys, const QueryEvaluationPoints& points,
                           std::optional<std::int32_t> window)
    : points_(points.size()), ranges_(as_index(keys.example_count() * points.size())) {
  first_.reserve(keys.bin.size());
  end_.reserve(keys.bin.size());
  for (std::int64_t example = 0; example < keys.example_count(); ++example) {
    const auto begin = keys.begin[as_index(example)];
    const auto last = keys.begin[as_index(example) + 1];
    KeyRange32* const ranges = ranges_.data() + example * points_;
    auto end = begin;
    for (std::int64_t c = 0; c < points_; ++c) {
      const auto at = as_index(c);
      while (end < last && keys.bin[as_index(end)] < points.bin[at]) ++end;
      ranges[c] = {static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end)};
      if (!window) continue;
      const auto position = keys.position.begin();
      ranges[c].begin = static_cast<std::int32_t>(
          std::partition_point(position + begin, position + end,
                               [&](std::int32_t t) { return t <= points.position[at] - *window; }) -
          position);
    }
    auto first = std::int64_t{0};
    for (auto key = begin; key < last; ++key) {
      const auto bin = keys.bin[as_index(key)];
      while (first < points_ && points.bin[as_index(first)] <= bin) ++first;
      first_.push_back(first);
    }
    if (!window) {
      end_.insert(end_.end(), as_index(last - begin), points_);
      continue;
    }
    // Inconsistent bucket numbers could move the window backwards, so make its start monotonic.
    for (auto c = points_ - 2; c >= 0; --c)
      ranges[c].begin = std::min(ranges[c].begin, ranges[c + 1].begin);
    for (auto key = begin; key < last; ++key)
      end_.push_back(std::upper_bound(
                         ranges, ranges + points_, key,
                         [](std::int64_t k, const KeyRange32& range) { return k < range.begin; }) -
                     ranges);
  }
}

}  // namespace qkscope
