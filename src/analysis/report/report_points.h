// The points of heads as the report's page takes them: packed numbers.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "analysis/figures/results.h"
#include "base/core/base64.h"
#include "base/io/json.h"

namespace qkscope {

static_assert(std::endian::native == std::endian::little, "the page reads little-endian numbers");

// An array of numbers as base64, the way the page unpacks it.
template <typename T>
std::string packed(const std::vector<T>& values) {
  return base64(std::as_bytes(std::span(values)));
}

// A point is 9 bytes: its position (3 bytes, the lowest first) and the coordinates on two principal
// components, a, b, c0, c1 between the head's lowest and highest (0 to 254; 255 where there is
// none).
class PointPacker {
 public:
  PointPacker(const Results& results, const Frame& head_scatter);

  // The head's rows of the table; queries come before keys.
  void add_head(std::vector<std::size_t> rows);

  // {"start", "queries", "low", "high", "last_positions", "components"}: arrays in base64, the last
  // position of each run, and the two components. Where the results have tokens also "tokens" (the
  // different texts) and "token" (per point, a place among them).
  Json json() const;
  std::string points() const;  // base64

 private:
  static constexpr std::size_t kAxes = 6;
  static constexpr std::size_t kBytes = 3 + kAxes;  // of a point

  void add_ranges(const std::vector<std::size_t>& rows);
  void add_position(std::int64_t position);
  void add_token(std::size_t row);

  const Frame& frame_;
  std::array<int, 2> components_;
  std::array<const std::vector<double>*, kAxes> axes_;  // null: none
  std::vector<std::int64_t> last_;                      // (runs): their last position
  const std::vector<std::string>* texts_ = nullptr;     // of tokens; null: not kept
  std::map<std::string, std::uint32_t> token_places_;
  std::vector<std::string> tokens_;         // the different ones
  std::vector<std::uint32_t> token_;        // (points)
  std::vector<std::uint32_t> start_ = {0};  // (heads + 1), in points
  std::vector<std::uint16_t> queries_;      // (heads)
  std::vector<float> lows_;                 // (heads, kAxes)
  std::vector<float> highs_;                // (heads, kAxes)
  std::vector<std::uint8_t> bytes_;         // (points, kBytes)
};

}  // namespace qkscope
