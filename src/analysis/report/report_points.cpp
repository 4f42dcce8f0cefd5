#include "analysis/report/report_points.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace qkscope {
namespace {

std::uint8_t quantised(double value, double low, double high) {
  if (std::isnan(value)) return 255;
  if (!(high > low)) return 127;
  return static_cast<std::uint8_t>(
      std::lround(254 * std::clamp((value - low) / (high - low), 0.0, 1.0)));
}

}  // namespace

PointPacker::PointPacker(const Results& results, const Frame& head_scatter)
    : frame_(head_scatter),
      components_(results.choices().components),
      last_(results.runs().size(), 1) {
  const std::array<std::string, kAxes> names = {fmt::format("pc{}", components_[0]),
                                                fmt::format("pc{}", components_[1]),
                                                "a",
                                                "b",
                                                "c0",
                                                "c1"};
  for (std::size_t i = 0; i < kAxes; ++i)
    axes_[i] = frame_.has(names[i]) ? &frame_.reals(names[i]) : nullptr;
  const auto& positions = frame_.integers("position");
  for (std::size_t row = 0; row < positions.size(); ++row) {
    auto& last = last_[static_cast<std::size_t>(frame_.run()[row])];
    last = std::max(last, positions[row]);
  }
  if (frame_.has("token")) texts_ = &frame_.texts("token");
}

void PointPacker::add_ranges(const std::vector<std::size_t>& rows) {
  for (const auto* axis : axes_) {
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    for (const auto row : rows) {
      if (!axis || std::isnan((*axis)[row])) continue;
      low = std::min(low, (*axis)[row]);
      high = std::max(high, (*axis)[row]);
    }
    lows_.push_back(static_cast<float>(low));
    highs_.push_back(static_cast<float>(high));
  }
}

void PointPacker::add_position(std::int64_t position) {
  constexpr std::int64_t kMost = 0xFFFFFF;
  const auto kept = static_cast<std::uint32_t>(std::clamp<std::int64_t>(position, 0, kMost));
  for (const int shift : {0, 8, 16}) bytes_.push_back(static_cast<std::uint8_t>(kept >> shift));
}

void PointPacker::add_token(std::size_t row) {
  if (!texts_) return;
  const auto& text = (*texts_)[row];
  const auto [found, fresh] =
      token_places_.emplace(text, static_cast<std::uint32_t>(tokens_.size()));
  if (fresh) tokens_.push_back(text);
  token_.push_back(found->second);
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
    add_position(frame_.integers("position")[row]);
    add_token(row);
    for (std::size_t i = 0; i < kAxes; ++i)
      bytes_.push_back(axes_[i] ? quantised((*axes_[i])[row], low[i], high[i]) : 255);
  }
  start_.push_back(static_cast<std::uint32_t>(bytes_.size() / kBytes));
}

Json PointPacker::json() const {
  Json json = {{"start", packed(start_)}, {"queries", packed(queries_)},
               {"low", packed(lows_)},    {"high", packed(highs_)},
               {"last_positions", last_}, {"components", components_}};
  if (texts_) {
    json["tokens"] = tokens_;
    json["token"] = packed(token_);
  }
  return json;
}

std::string PointPacker::points() const {
  return packed(bytes_);
}

}  // namespace qkscope
