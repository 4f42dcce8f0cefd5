#include "figures/report_points.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "figures/packed.h"

namespace qkscope {
namespace {

std::uint8_t quantised(double value, double low, double high) {
  if (std::isnan(value)) return 255;
  if (!(high > low)) return 127;
  return static_cast<std::uint8_t>(
      std::lround(254 * std::clamp((value - low) / (high - low), 0.0, 1.0)));
}

}  // namespace

PointPacker::PointPacker(const Frame& head_scatter) : frame_(head_scatter) {
  constexpr std::array<const char*, kAxes> kNames = {"pc0", "pc1", "a", "b", "c0", "c1"};
  for (std::size_t i = 0; i < kAxes; ++i) axes_[i] = &frame_.reals(kNames[i]);
  for (const auto position : frame_.integers("position")) last_ = std::max(last_, position);
}

void PointPacker::add_ranges(const std::vector<std::size_t>& rows) {
  for (const auto* axis : axes_) {
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    for (const auto row : rows) {
      if (std::isnan((*axis)[row])) continue;
      low = std::min(low, (*axis)[row]);
      high = std::max(high, (*axis)[row]);
    }
    lows_.push_back(static_cast<float>(low));
    highs_.push_back(static_cast<float>(high));
  }
}

void PointPacker::add_head(std::vector<std::size_t> rows) {
  const auto& sides = frame_.texts("side");
  const auto keys = std::stable_partition(rows.begin(), rows.end(),
                                          [&](std::size_t row) { return sides[row] == "q"; });
  queries_.push_back(static_cast<std::uint16_t>(keys - rows.begin()));
  add_ranges(rows);
  const float* const low = lows_.data() + lows_.size() - kAxes;
  const float* const high = highs_.data() + highs_.size() - kAxes;
  for (const auto row : rows) {
    bytes_.push_back(quantised(static_cast<double>(frame_.integers("position")[row]), 0,
                               static_cast<double>(last_)));
    for (std::size_t i = 0; i < kAxes; ++i)
      bytes_.push_back(quantised((*axes_[i])[row], low[i], high[i]));
  }
  start_.push_back(static_cast<std::uint32_t>(bytes_.size() / (1 + kAxes)));
}

Json PointPacker::json() const {
  return {{"start", packed(start_)},
          {"queries", packed(queries_)},
          {"low", packed(lows_)},
          {"high", packed(highs_)},
          {"last_position", last_}};
}

std::string PointPacker::points() const {
  return packed(bytes_);
}

}  // namespace qkscope
