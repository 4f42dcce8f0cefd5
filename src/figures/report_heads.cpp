#include "figures/report_heads.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "core/base64.h"
#include "core/nan.h"
#include "figures/style.h"

namespace qkscope {
namespace {

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

std::uint8_t quantised(double value, double low, double high) {
  if (std::isnan(value)) return 255;
  if (!(high > low)) return 127;
  return static_cast<std::uint8_t>(
      std::lround(254 * std::clamp((value - low) / (high - low), 0.0, 1.0)));
}

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

// Every head that some table knows, by run, layer and head.
class HeadIndex {
 public:
  explicit HeadIndex(const Results& results) {
    for (const char* name : {"qk", "rotated", "head_metrics"}) {
      if (!results.has(name)) continue;
      const Frame& frame = results.frame(name);
      for (std::size_t row = 0; row < frame.rows(); ++row) heads_.insert({key(frame, row), 0});
    }
    std::size_t next = 0;
    for (auto& [key, place] : heads_) place = next++;
  }

  std::size_t size() const { return heads_.size(); }

  // Calls body(row, place of its head) for every row of the table.
  template <typename Body>
  void each_row(const Frame& frame, const Body& body) const {
    for (std::size_t row = 0; row < frame.rows(); ++row)
      if (const auto found = heads_.find(key(frame, row)); found != heads_.end())
        body(row, found->second);
  }

  template <typename Body>
  void each_head(const Body& body) const {
    for (const auto& [key, place] : heads_)
      body(place, std::get<0>(key), std::get<1>(key), std::get<2>(key));
  }

 private:
  using Key = std::tuple<int, std::int64_t, std::int64_t>;  // run, layer, head
  static Key key(const Frame& frame, std::size_t row) {
    return {frame.run()[row], frame.integers("layer")[row], frame.heads()[row]};
  }

  std::map<Key, std::size_t> heads_;
};

struct HeadMeasure {
  const char* table;
  const char* column;
  bool optional = false;  // older results do not have it
};

constexpr HeadMeasure kHeadMeasures[] = {{"qk", "r_q"},
                                         {"qk", "r_q_null", true},
                                         {"qk", "r_k"},
                                         {"qk", "r_k_null", true},
                                         {"qk", "explained_variance"},
                                         {"qk", "fisher"},
                                         {"qk", "positional_variance_q"},
                                         {"qk", "positional_variance_k"},
                                         {"rotated", "position_r"},
                                         {"rotated", "position_r_null", true},
                                         {"rotated", "position_r_p", true},
                                         {"rotated", "r_q_a"},
                                         {"rotated", "r_q_a_null", true},
                                         {"rotated", "r_q_a_p", true},
                                         {"rotated", "r_k_a"},
                                         {"rotated", "r_k_a_null", true},
                                         {"rotated", "r_k_a_p", true},
                                         {"rotated", "alpha_q"},
                                         {"rotated", "alpha_k"},
                                         {"rotated", "mu_q_a"},
                                         {"rotated", "mu_k_a"},
                                         {"rotated", "bias_strength"},
                                         {"rotated", "separation_strength"},
                                         {"rotated", "var_frac_a"},
                                         {"rotated", "var_frac_b"},
                                         {"rotated", "plane_var_fraction"},
                                         {"rotated", "omega"},
                                         {"rotated", "omega_r_squared"},
                                         {"head_metrics", "q_R2_pos"},
                                         {"head_metrics", "q_beta_norm"},
                                         {"head_metrics", "ap_profile_overall"},
                                         {"head_metrics", "ap_overall"},
                                         {"head_metrics", "ap_first20"},
                                         {"head_metrics", "ap_last20"},
                                         {"head_metrics", "ap_drop"}};

Json measures_of(const Results& results, const HeadIndex& heads) {
  Json list = Json::array();
  for (const auto& measure : kHeadMeasures) {
    if (!results.has(measure.table)) continue;
    const Frame& frame = results.frame(measure.table);
    if (measure.optional && !frame.has(measure.column)) continue;
    const auto& from = frame.reals(measure.column);
    const auto* components = std::string(measure.table) == "qk" ? &frame.integers("pc") : nullptr;
    std::vector<float> values(heads.size(), kNan);
    heads.each_row(frame, [&](std::size_t row, std::size_t place) {
      if (!components || (*components)[row] == 0) values[place] = static_cast<float>(from[row]);
    });
    list.push_back({{"name", measure.column}, {"data", packed(values)}});
  }
  return list;
}

// Where a text of the heads stands in `names`; 255 where it does not.
std::string text_codes(const Results& results, const HeadIndex& heads,
                       const std::vector<const char*>& tables, const char* column,
                       const std::vector<std::string>& names) {
  std::vector<std::uint8_t> codes(heads.size(), 255);
  for (const char* table : tables) {
    if (!results.has(table)) continue;
    const Frame& frame = results.frame(table);
    const auto& texts = frame.texts(column);
    heads.each_row(frame, [&](std::size_t row, std::size_t place) {
      const auto found = std::find(names.begin(), names.end(), texts[row]);
      if (found != names.end()) codes[place] = static_cast<std::uint8_t>(found - names.begin());
    });
  }
  return packed(codes);
}

Json profiles_of(const Results& results, const HeadIndex& heads) {
  if (!results.has("head_profile")) return nullptr;
  const Frame& frame = results.frame("head_profile");
  std::vector<std::vector<std::size_t>> rows(heads.size());
  heads.each_row(frame, [&](std::size_t row, std::size_t place) { rows[place].push_back(row); });
  std::vector<std::uint32_t> start = {0};
  std::vector<float> positions;
  std::vector<float> values;
  std::vector<float> errors;
  for (const auto& of_head : rows) {
    for (const auto row : of_head) {
      positions.push_back(static_cast<float>(frame.reals("position")[row]));
      values.push_back(static_cast<float>(frame.reals("ap")[row]));
      errors.push_back(frame.has("stderr") ? static_cast<float>(frame.reals("stderr")[row])
                                           : std::numeric_limits<float>::quiet_NaN());
    }
    start.push_back(static_cast<std::uint32_t>(values.size()));
  }
  return {{"start", packed(start)},
          {"position", packed(positions)},
          {"ap", packed(values)},
          {"error", packed(errors)}};
}

void add_scatter(const Results& results, const HeadIndex& heads, ReportHeads& report) {
  report.json["scatter"] = nullptr;
  if (!results.has("head_scatter")) return;
  const Frame& frame = results.frame("head_scatter");
  std::vector<std::vector<std::size_t>> rows(heads.size());
  heads.each_row(frame, [&](std::size_t row, std::size_t place) { rows[place].push_back(row); });
  PointPacker packer(results, frame);
  for (auto& of_head : rows) packer.add_head(std::move(of_head));
  report.json["scatter"] = packer.json();
  report.points = packer.points();
}

}  // namespace

ReportHeads report_heads(const Results& results) {
  const HeadIndex heads(results);
  std::vector<std::uint16_t> run(heads.size());
  std::vector<std::uint16_t> layer(heads.size());
  std::vector<std::uint16_t> head(heads.size());
  heads.each_head([&](std::size_t place, int r, std::int64_t l, std::int64_t h) {
    run[place] = static_cast<std::uint16_t>(r);
    layer[place] = static_cast<std::uint16_t>(l);
    head[place] = static_cast<std::uint16_t>(h);
  });
  const std::vector<std::string> ropes = {"rope", "nope", "unknown"};
  std::vector<std::string> classes;
  Json class_styles = Json::array();
  for (const auto& c : style::kClasses) {
    classes.emplace_back(c.name);
    class_styles.push_back({{"title", c.title}, {"colour", c.colour}});
  }
  ReportHeads report;
  report.json = {
      {"count", heads.size()},
      {"run", packed(run)},
      {"layer", packed(layer)},
      {"head", packed(head)},
      {"ropes", ropes},
      {"rope", text_codes(results, heads, {"qk", "rotated", "head_metrics"}, "rope", ropes)},
      {"classes", class_styles},
      {"class", text_codes(results, heads, {"taxonomy"}, "class", classes)},
      {"measures", measures_of(results, heads)},
      {"profile", profiles_of(results, heads)}};
  add_scatter(results, heads, report);
  return report;
}

}  // namespace qkscope
