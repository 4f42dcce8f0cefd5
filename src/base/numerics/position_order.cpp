#include "base/numerics/position_order.h"

#include <algorithm>

#include "base/core/error.h"
#include "base/numerics/phase_table.h"

namespace qkscope {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 24;  // tokens

}  // namespace

PositionOrder::PositionOrder(std::span<const std::int32_t> positions)
    : offset_(positions.size()), sorted_rank_(positions.size()) {
  const auto [low, high] = std::minmax_element(positions.begin(), positions.end());
  length_ = static_cast<std::int64_t>(*high) - *low + 1;
  if (length_ > kLongest)
    bad_input("positions run from {} to {}; frequencies are searched over at most {} tokens", *low,
              *high, kLongest);
  const std::int32_t first = *low;
  const auto block = [&](std::int32_t position) {
    return static_cast<std::size_t>((position - first) / PhaseTable::kBlock);
  };
  begin_.resize(block(*high) + 2);
  for (const auto position : positions) ++begin_[block(position) + 1];
  for (std::size_t b = 1; b < begin_.size(); ++b) begin_[b] += begin_[b - 1];
  auto next = begin_;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto at = next[block(positions[i])]++;
    sorted_rank_[i] = static_cast<std::uint32_t>(at);
    offset_[at] = positions[i] - first;
  }
}

}  // namespace qkscope
