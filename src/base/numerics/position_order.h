// Counting sort of rows by position into blocks of 256 positions, so that a Fourier sum over rows
// needs one coarse phase per block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qkscope {

class PositionOrder {
 public:
  explicit PositionOrder(std::span<const std::int32_t> positions);

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
  std::int64_t length_ = 0;
  std::vector<std::int32_t> offset_;
  std::vector<std::uint32_t> sorted_rank_;
  std::vector<std::size_t> begin_;
};

}  // namespace qkscope
