// Data of all heads for the report, packed into arrays.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "analysis/figures/style.h"
#include "analysis/report/report.h"
#include "base/core/numbers.h"
#include "base/core/text.h"

namespace qkscope {
namespace {

static_assert(std::endian::native == std::endian::little, "the page reads little-endian numbers");

// Encodes an array of numbers as base64; unpack() in data.js decodes it.
template <typename T>
std::string pack_base64(const std::vector<T>& values) {
  return encode_base64(std::as_bytes(std::span(values)));
}

// Tables with one or more rows for every analysed head.
const std::vector<const char*> kHeadTables = {"qk", "rotated", "head_metrics"};

// Index of all heads that occur in a table, sorted by run, layer and head.
class HeadIndex {
 public:
  explicit HeadIndex(const AnalysisResults& results) {
    for (const char* name : kHeadTables) {
      if (!results.has(name)) continue;
      const ResultFrame& frame = results.frame(name);
      for (std::size_t row = 0; row < frame.rows(); ++row) heads_.insert({key(frame, row), 0});
    }
    std::size_t next = 0;
    for (auto& [key, place] : heads_) place = next++;
  }

  std::size_t size() const { return heads_.size(); }

  // Calls body(row, index of its head) for every row of the table.
  template <typename Body>
  void for_each_head_row(const ResultFrame& frame, const Body& body) const {
    for (std::size_t row = 0; row < frame.rows(); ++row)
      if (const auto found = heads_.find(key(frame, row)); found != heads_.end())
        body(row, found->second);
  }

  // Shape (heads): the rows of each head.
  std::vector<std::vector<std::size_t>> rows_by_head(const ResultFrame& frame) const {
    std::vector<std::vector<std::size_t>> rows(size());
    for_each_head_row(frame,
                      [&](std::size_t row, std::size_t place) { rows[place].push_back(row); });
    return rows;
  }

  // Shape (heads), packed: run index (part 0), layer (part 1) or head number within the layer (part
  // 2).
  template <std::size_t Part>
  std::string packed_part() const {
    std::vector<std::uint16_t> numbers;
    for (const auto& [key, place] : heads_)
      numbers.push_back(static_cast<std::uint16_t>(std::get<Part>(key)));
    return pack_base64(numbers);
  }

 private:
  using Key = std::tuple<std::size_t, std::int64_t, std::int64_t>;  // run, layer, head
  static Key key(const ResultFrame& frame, std::size_t row) {
    return {frame.run_indices()[row], frame.integer_column("layer")[row], frame.head_column()[row]};
  }

  std::map<Key, std::size_t> heads_;
};

// Columns of a table that the page shows for every head, in the order of the page.
struct HeadMeasures {
  const char* table;
  const char* columns;  // a question mark: older results do not have the column
};
constexpr HeadMeasures kHeadMeasures[] = {
    {"qk",
     "r_q r_q_null? r_k r_k_null? explained_variance fisher positional_variance_q "
     "positional_variance_k"},
    {"rotated",
     "position_r position_r_null? position_r_p? r_q_a r_q_a_null? r_q_a_p? r_k_a r_k_a_null? "
     "r_k_a_p? alpha_q alpha_k mu_q_a mu_k_a bias_strength separation_strength var_frac_a "
     "var_frac_b plane_var_fraction omega omega_r_squared"},
    {"head_metrics",
     "q_R2_pos q_beta_norm ap_profile_overall ap_overall ap_first20 ap_last20 ap_drop "
     "ap_free_overall? ap_free_first20? ap_free_last20? ap_free_drop? gaussian?"},
    {"taxonomy", "r_q_axis? r_k_axis? pc_position? pc_position_variance?"},
    {"attention",
     "sink_0? previous_token_head? induction_head? stream? entropy? distance_mean? perplexity?"}};

std::vector<double> yes_no_numbers(const std::vector<std::string>& texts) {
  std::vector<double> numbers;
  for (const auto& text : texts) numbers.push_back(text == "yes" ? 1.0 : text == "no" ? 0.0 : kNan);
  return numbers;
}

Json measures_json(const AnalysisResults& results, const HeadIndex& heads) {
  Json list = Json::array();
  for (const auto& [table, columns] : kHeadMeasures) {
    if (!results.has(table)) continue;
    const ResultFrame& frame = results.frame(table);
    for (auto column : split(columns, ' ')) {
      const bool optional = column.ends_with('?');
      if (optional) column.pop_back();
      if (optional && !frame.has(column)) continue;
      const auto numbers = column == "gaussian" ? yes_no_numbers(frame.text_column(column))
                                                : frame.numeric_column(column);
      std::vector<float> values(heads.size(), kNan);
      heads.for_each_head_row(frame, [&](std::size_t row, std::size_t place) {
        if (frame.is_first_component(row)) values[place] = static_cast<float>(numbers[row]);
      });
      list.push_back({{"name", column}, {"data", pack_base64(values)}});
    }
  }
  return list;
}

// Encodes a text column: for each head the index of its text in `names`, 255 for any other text.
std::string text_codes(const AnalysisResults& results, const HeadIndex& heads,
                       const std::vector<const char*>& tables, const char* column,
                       const std::vector<std::string>& names) {
  std::vector<std::uint8_t> codes(heads.size(), 255);
  for (const char* table : tables) {
    if (!results.has(table)) continue;
    const ResultFrame& frame = results.frame(table);
    if (!frame.has(column)) continue;
    const auto& texts = frame.text_column(column);
    heads.for_each_head_row(frame, [&](std::size_t row, std::size_t place) {
      const auto found = std::ranges::find(names, texts[row]);
      if (found != names.end()) codes[place] = static_cast<std::uint8_t>(found - names.begin());
    });
  }
  return pack_base64(codes);
}

Json profiles_json(const AnalysisResults& results, const HeadIndex& heads) {
  if (!results.has("head_profile")) return nullptr;
  const ResultFrame& frame = results.frame("head_profile");
  std::vector<std::uint32_t> start = {0};
  std::vector<float> positions;
  std::vector<float> values;
  std::vector<float> free_values;
  std::vector<float> errors;
  const auto at = [&](const std::string& column, std::size_t row) {
    return frame.has(column) ? static_cast<float>(frame.real_column(column)[row])
                             : std::numeric_limits<float>::quiet_NaN();
  };
  const std::string error = profile_error_column(frame);
  for (const auto& rows : heads.rows_by_head(frame)) {
    for (const auto row : rows) {
      positions.push_back(static_cast<float>(frame.real_column("position")[row]));
      values.push_back(static_cast<float>(frame.real_column("ap")[row]));
      free_values.push_back(at("ap_free", row));
      errors.push_back(at(error, row));
    }
    start.push_back(static_cast<std::uint32_t>(values.size()));
  }
  return {{"start", pack_base64(start)},
          {"position", pack_base64(positions)},
          {"ap", pack_base64(values)},
          {"ap_free", frame.has("ap_free") ? Json(pack_base64(free_values)) : Json()},
          {"error", pack_base64(errors)}};
}

// Points of all heads, 9 bytes each: the position (3 bytes, little-endian) and the coordinates on
// two principal components, a, b, c0 and c1, quantised to 0..254 between the head's minimum and
// maximum (255: no value).
struct PackedPoints {
  std::vector<std::size_t> rows;           // (points): row of head_scatter
  std::vector<std::uint32_t> start = {0};  // (heads + 1): index of the first point
  std::vector<std::uint16_t> queries;      // (heads): number of queries
  std::vector<float> lows;                 // (heads, axes)
  std::vector<float> highs;                // (heads, axes)
  std::vector<std::uint8_t> bytes;         // (points, 9)
};

std::uint8_t quantised(double value, double low, double high) {
  if (std::isnan(value)) return 255;
  if (!(high > low)) return 127;
  return static_cast<std::uint8_t>(
      std::lround(254 * std::clamp((value - low) / (high - low), 0.0, 1.0)));
}

// Appends the points of one head, queries before keys. An axis is null if its column is missing.
void pack_points(const ResultFrame& frame, const std::vector<const std::vector<double>*>& axes,
                 std::vector<std::size_t> rows, PackedPoints& points) {
  const auto& sides = frame.text_column("side");
  const auto keys = std::stable_partition(rows.begin(), rows.end(),
                                          [&](std::size_t row) { return sides[row] == "q"; });
  points.queries.push_back(static_cast<std::uint16_t>(keys - rows.begin()));
  const auto first_axis = points.lows.size();
  for (const auto* axis : axes) {
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    for (const auto row : rows) {
      if (!axis || std::isnan((*axis)[row])) continue;
      low = std::min(low, (*axis)[row]);
      high = std::max(high, (*axis)[row]);
    }
    points.lows.push_back(static_cast<float>(low));
    points.highs.push_back(static_cast<float>(high));
  }
  for (const auto row : rows) {
    constexpr std::int64_t kMost = 0xFFFFFF;
    const auto position = std::clamp<std::int64_t>(frame.integer_column("position")[row], 0, kMost);
    for (const int shift : {0, 8, 16})
      points.bytes.push_back(static_cast<std::uint8_t>(position >> shift));
    for (std::size_t i = 0; i < axes.size(); ++i)
      points.bytes.push_back(axes[i] ? quantised((*axes[i])[row], points.lows[first_axis + i],
                                                 points.highs[first_axis + i])
                                     : 255);
  }
  points.rows.insert(points.rows.end(), rows.begin(), rows.end());
  points.start.push_back(static_cast<std::uint32_t>(points.rows.size()));
}

// Adds "tokens" (the distinct texts) and "token" (per point, an index into "tokens").
void add_tokens(const std::vector<std::string>& texts, const PackedPoints& points, Json& scatter) {
  std::map<std::string, std::uint32_t> places;
  std::vector<std::string> tokens;
  std::vector<std::uint32_t> token_of_point;
  for (const auto row : points.rows) {
    const auto [found, fresh] =
        places.emplace(texts[row], static_cast<std::uint32_t>(tokens.size()));
    if (fresh) tokens.push_back(texts[row]);
    token_of_point.push_back(found->second);
  }
  scatter["tokens"] = tokens;
  scatter["token"] = pack_base64(token_of_point);
}

void add_scatter(const AnalysisResults& results, const HeadIndex& heads, ReportHeadData& report) {
  report.json["scatter"] = nullptr;
  if (!results.has("head_scatter")) return;
  const ResultFrame& frame = results.frame("head_scatter");
  const auto& components = results.choices().components;
  std::vector<const std::vector<double>*> axes;
  for (const std::string& name :
       {fmt::format("pc{}", components[0]), fmt::format("pc{}", components[1]), std::string("a"),
        std::string("b"), std::string("c0"), std::string("c1")})
    axes.push_back(frame.has(name) ? &frame.real_column(name) : nullptr);
  PackedPoints points;
  for (auto& rows : heads.rows_by_head(frame)) pack_points(frame, axes, std::move(rows), points);
  std::vector<std::int64_t> last_positions(results.runs().size(), 1);
  const auto& positions = frame.integer_column("position");
  for (std::size_t row = 0; row < positions.size(); ++row) {
    auto& last = last_positions[frame.run_indices()[row]];
    last = std::max(last, positions[row]);
  }
  Json& scatter = report.json["scatter"];
  scatter = {{"start", pack_base64(points.start)}, {"queries", pack_base64(points.queries)},
             {"low", pack_base64(points.lows)},    {"high", pack_base64(points.highs)},
             {"last_positions", last_positions},   {"components", components}};
  if (frame.has("token")) add_tokens(frame.text_column("token"), points, scatter);
  report.points = pack_base64(points.bytes);
}

// The different attention kinds of all heads, sorted; empty for older results.
std::vector<std::string> attention_kinds(const AnalysisResults& results) {
  std::set<std::string> kinds;
  for (const char* table : kHeadTables)
    if (results.has(table) && results.frame(table).has("attention"))
      for (const auto& kind : results.frame(table).text_column("attention")) kinds.insert(kind);
  kinds.erase("");
  return {kinds.begin(), kinds.end()};
}

}  // namespace

ReportHeadData collect_report_head_data(const AnalysisResults& results) {
  const HeadIndex heads(results);
  const std::vector<std::string> ropes = {"rope", "nope", "unknown"};
  std::vector<std::string> classes;
  Json class_styles = Json::array();
  for (const auto& c : style::kClasses) {
    classes.emplace_back(c.name);
    class_styles.push_back({{"title", c.title}, {"colour", c.colour}});
  }
  const auto attentions = attention_kinds(results);
  const bool both_classes = results.has("taxonomy") && results.frame("taxonomy").has("class_axis");
  ReportHeadData report;
  report.json = {{"count", heads.size()},
                 {"run", heads.packed_part<0>()},
                 {"layer", heads.packed_part<1>()},
                 {"head", heads.packed_part<2>()},
                 {"ropes", ropes},
                 {"rope", text_codes(results, heads, kHeadTables, "rope", ropes)},
                 {"attentions", attentions},
                 {"attention", text_codes(results, heads, kHeadTables, "attention", attentions)},
                 {"classes", class_styles},
                 {"class", text_codes(results, heads, {"taxonomy"}, "class", classes)},
                 {"class_axis", both_classes ? Json(text_codes(results, heads, {"taxonomy"},
                                                               "class_axis", classes))
                                             : Json()},
                 {"measures", measures_json(results, heads)},
                 {"profile", profiles_json(results, heads)}};
  add_scatter(results, heads, report);
  return report;
}

}  // namespace qkscope
