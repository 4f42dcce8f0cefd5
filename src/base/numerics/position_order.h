// Counting sort of rows by position into blocks of 256 positions, so that a Fourier sum over rows
// needs one coarse phase per block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/core/error.h"
#include "base/numerics/phase_table.h"

namespace qkscope {

class PositionOrder {
 public:
  explicit PositionOrder(std::span<const std::int32_t> positions)
      : offset_(positions.size()), sorted_rank_(positions.size()) {
    const auto [low, high] = std::minmax_element(positions.begin(), positions.end());
    length_ = static_cast<std::int64_t>(*high) - *low + 1;
    if (length_ > kLongest)
      bad_input("positions run from {} to {}; frequencies are searched over at most {} tokens",
                *low, *high, kLongest);
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

  std::int64_t length() const { return length_; }  // largest position - smallest + 1
  std::int64_t rows() const { return std::ssize(offset_); }
  std::int64_t blocks() const { return std::ssize(begin_) - 1; }
  // Sorted rows [begin(b), begin(b + 1)) have offsets in [256 b, 256 (b + 1)).
  std::size_t begin(std::int64_t block) const { return begin_[static_cast<std::size_t>(block)]; }
  // (rows): position minus smallest position, in sorted order.
  std::span<const std::int32_t> offsets() const { return offset_; }
  // (rows): index of input row i in sorted order.
  std::span<const std::uint32_t> sorted_ranks() const { return sorted_rank_; }

 private:
  static constexpr std::int64_t kLongest = std::int64_t{1} << 24;  // tokens

  std::int64_t length_ = 0;
  std::vector<std::int32_t> offset_;
  std::vector<std::uint32_t> sorted_rank_;
  std::vector<std::size_t> begin_;
};

}  // namespace qkscope
