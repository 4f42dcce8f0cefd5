// Points of all heads, packed for the report's page.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "figures/results.h"
#include "io/json.h"

namespace qkscope {

// A point is 7 bytes: its position over the last one and the coordinates pc0, pc1, a, b, c0, c1
// between the head's lowest and highest (0 to 254; 255 where there is none).
class PointPacker {
 public:
  explicit PointPacker(const Frame& head_scatter);

  // The head's rows of the table; queries come before keys.
  void add_head(std::vector<std::size_t> rows);

  // {"start", "queries", "low", "high", "last_position"}: arrays in base64.
  Json json() const;
  std::string points() const;  // base64

 private:
  static constexpr std::size_t kAxes = 6;

  void add_ranges(const std::vector<std::size_t>& rows);

  const Frame& frame_;
  std::array<const std::vector<double>*, kAxes> axes_;
  std::int64_t last_ = 1;
  std::vector<std::uint32_t> start_ = {0};  // (heads + 1), in points
  std::vector<std::uint16_t> queries_;      // (heads)
  std::vector<float> lows_;                 // (heads, kAxes)
  std::vector<float> highs_;                // (heads, kAxes)
  std::vector<std::uint8_t> bytes_;         // (points, 1 + kAxes)
};

}  // namespace qkscope
