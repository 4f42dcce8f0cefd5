// Rows put in the order of their positions, block by block: what is summed over rows then needs one
// coarse phase per block.
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
  // Rows [begin(block), begin(block + 1)) have offsets in [256 block, 256 (block + 1)).
  std::size_t begin(std::int64_t block) const { return begin_[static_cast<std::size_t>(block)]; }
  // Position - smallest position, in the new order.
  std::span<const std::int32_t> offsets() const { return offset_; }
  // Where row i of the input went.
  std::span<const std::uint32_t> places() const { return place_; }

 private:
  std::int64_t length_ = 0;
  std::vector<std::int32_t> offset_;
  std::vector<std::uint32_t> place_;
  std::vector<std::size_t> begin_;
};

}  // namespace qkscope
