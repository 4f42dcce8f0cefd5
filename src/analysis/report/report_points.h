// Packs the points of all heads for the report.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "analysis/figures/results.h"
#include "base/core/text.h"
#include "base/io/json.h"

namespace qkscope {

static_assert(std::endian::native == std::endian::little, "the page reads little-endian numbers");

// Encodes an array of numbers as base64; unpack() in data.js decodes it.
template <typename T>
std::string packed(const std::vector<T>& values) {
  return encode_base64(std::as_bytes(std::span(values)));
}

// Packs each point into 9 bytes: its position (3 bytes, little-endian) and its coordinates on two
// principal components, a, b, c0 and c1, quantised to 0..254 between the head's minimum and maximum
// (255: no value).
class PointPacker {
 public:
  PointPacker(const Results& results, const Frame& head_scatter);

  // Appends the points of one head, given its rows of head_scatter. Queries are stored before keys.
  void add_head(std::vector<std::size_t> rows);

  // {"start", "queries", "low", "high"} as base64 arrays, "last_positions" of each run and
  // "components". Results with token texts add "tokens" (the distinct texts) and "token" (per
  // point, an index into "tokens").
  Json json() const;
  std::string points() const;  // base64

 private:
  static constexpr std::size_t kAxes = 6;
  static constexpr std::size_t kBytes = 3 + kAxes;  // per point

  void add_ranges(const std::vector<std::size_t>& rows);
  void add_position(std::int64_t position);
  void add_token(std::size_t row);

  const Frame& frame_;
  std::array<int, 2> components_;
  std::array<const std::vector<double>*, kAxes> axes_;  // null: no such column
  std::vector<std::int64_t> last_;                      // (runs): last position
  const std::vector<std::string>* texts_ = nullptr;     // token texts; null: not stored
  std::map<std::string, std::uint32_t> token_places_;
  std::vector<std::string> tokens_;         // distinct texts
  std::vector<std::uint32_t> token_;        // (points)
  std::vector<std::uint32_t> start_ = {0};  // (heads + 1): index of the first point
  std::vector<std::uint16_t> queries_;      // (heads): number of queries
  std::vector<float> lows_;                 // (heads, kAxes)
  std::vector<float> highs_;                // (heads, kAxes)
  std::vector<std::uint8_t> bytes_;         // (points, kBytes)
};

}  // namespace qkscope
