// Data of all heads for the report, packed into arrays.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "analysis/figures/figure.h"
#include "analysis/report/report.h"
#include "analysis/results/results_folder.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/text.h"

namespace qkscope {
namespace {

static_assert(std::endian::native == std::endian::little, "the page reads little-endian numbers");

// Tables that have at least one row for every analysed head.
constexpr std::initializer_list<const char*> kHeadTables = {"qk", "rotated", "head_metrics",
                                                            "geometry"};

// Maps each head in the tables to its index in the order of run, layer and head number.
class HeadIndex {
 public:
  explicit HeadIndex(const AnalysisResults& results) {
    for (const char* name : kHeadTables) {
      if (!results.has_table(name)) continue;
      const ResultFrame& frame = results.frame(name);
      for (std::size_t row = 0; row < frame.row_count(); ++row)
        places_.insert({frame.head_at(row), 0});
    }
    std::size_t next = 0;
    for (auto& [key, place] : places_) place = next++;
  }

  std::size_t size() const { return places_.size(); }
  const std::map<HeadOfRun, std::size_t>& indices() const { return places_; }

  // Calls body(row, index of its head) for every row of the table.
  template <typename Body>
  void for_each_head_row(const ResultFrame& frame, const Body& body) const {
    for (std::size_t row = 0; row < frame.row_count(); ++row)
      if (const auto found = places_.find(frame.head_at(row)); found != places_.end())
        body(row, found->second);
  }

  // Returns the table rows of each head, shape (heads).
  std::vector<std::vector<std::size_t>> rows_by_head(const ResultFrame& frame) const {
    std::vector<std::vector<std::size_t>> rows(size());
    for_each_head_row(frame,
                      [&](std::size_t row, std::size_t place) { rows[place].push_back(row); });
    return rows;
  }

  // Encodes the run, the layer or the number of every head as base64.
  template <typename Number>
  std::string encode_field(Number HeadOfRun::*part) const {
    return encode_base64(to_vector(
        places_, [&](const auto& entry) { return static_cast<std::uint16_t>(entry.first.*part); }));
  }

 private:
  std::map<HeadOfRun, std::size_t> places_;
};

// Tables and columns that the page shows, in page order. '?': missing in older results.
std::vector<std::pair<const char*, std::string>> head_measure_columns() {
  return {
      {"qk",
       "r_q r_q_null? r_k r_k_null? explained_variance fisher positional_variance_q "
       "positional_variance_k"},
      {"rotated",
       "position_r position_r_null? position_r_p? r_q_a r_q_a_null? r_q_a_p? r_k_a r_k_a_null? "
       "r_k_a_p? alpha_q alpha_k mu_q_a mu_k_a bias_strength separation_strength var_frac_a "
       "var_frac_b plane_var_fraction omega omega_r_squared"},
      {"head_metrics",
       "q_R2_pos q_beta_norm ap_profile_overall ap_overall ap_first20 ap_last20 ap_drop "
       "ap_free_overall? ap_free_first20? ap_free_last20? ap_free_drop?"},
      {"taxonomy", "r_q_axis? r_k_axis? pc_position? pc_position_variance?"},
      {"attention",
       "sink_0? previous_token_head? induction_head? stream? entropy? distance_mean? perplexity?"},
      {"geometry", [] {
         std::string columns;
         for (const auto& column : geometry_columns())
           columns += (columns.empty() ? "" : " ") + column.name + "?";
         return columns;
       }()}};
}

Json measures_json(const AnalysisResults& results, const HeadIndex& heads) {
  Json list = Json::array();
  for (const auto& [table, columns] : head_measure_columns()) {
    if (!results.has_table(table)) continue;
    const ResultFrame& frame = results.frame(table);
    for (auto column : split(columns, ' ')) {
      const bool optional = column.ends_with('?');
      if (optional) column.pop_back();
      if (optional && !frame.has_column(column)) continue;
      const auto numbers = frame.numeric_column(column);
      std::vector<float> values(heads.size(), kNan);
      heads.for_each_head_row(frame, [&](std::size_t row, std::size_t place) {
        if (frame.is_first_component(row)) values[place] = static_cast<float>(numbers[row]);
      });
      list.push_back({{"name", column}, {"data", encode_base64(values)}});
    }
  }
  return list;
}

// Encodes a text column of heads: {"names": distinct texts, "codes": index per head, 255: none}.
Json text_column_json(const AnalysisResults& results, const HeadIndex& heads,
                      const std::vector<const char*>& tables, const char* column) {
  constexpr std::uint8_t kNone = 255;
  std::vector<std::string> names;
  std::vector<std::uint8_t> codes(heads.size(), kNone);
  for (const char* table : tables) {
    if (!results.has_table(table) || !results.frame(table).has_column(column)) continue;
    const auto& texts = results.frame(table).text_column(column);
    heads.for_each_head_row(results.frame(table), [&](std::size_t row, std::size_t place) {
      const auto code = std::ranges::find(names, texts[row]) - names.begin();
      if (texts[row].empty() || code == kNone) return;
      if (code == std::ssize(names)) names.push_back(texts[row]);
      codes[place] = static_cast<std::uint8_t>(code);
    });
  }
  return {{"names", names}, {"codes", encode_base64(codes)}};
}

Json profiles_json(const AnalysisResults& results, const HeadIndex& heads) {
  if (!results.has_table("head_profile")) return nullptr;
  const ResultFrame& frame = results.frame("head_profile");
  std::vector<std::uint32_t> start = {0};
  std::vector<std::size_t> order;  // rows of the first head, then of the next
  for (const auto& rows : heads.rows_by_head(frame)) {
    order.insert(order.end(), rows.begin(), rows.end());
    start.push_back(static_cast<std::uint32_t>(order.size()));
  }
  const auto packed = [&](const std::string& column) {
    std::vector<float> values(order.size(), kNan);
    for (std::size_t i = 0; i < order.size() && frame.has_column(column); ++i)
      values[i] = static_cast<float>(frame.real_column(column)[order[i]]);
    return encode_base64(values);
  };
  return {{"start", encode_base64(start)},
          {"position", packed("position")},
          {"ap", packed("ap")},
          {"ap_free", frame.has_column("ap_free") ? Json(packed("ap_free")) : Json()},
          {"error", packed(profile_error_column(frame))}};
}

// Scatter points of all heads, 9 bytes each: the position (3 bytes, little-endian) and six
// coordinates (two principal components, and the axes a, b, c0 and c1 of the planar model), each
// quantised to 0..254 between the head's minimum and maximum (255: no value).
struct PackedScatterPoints {
  std::vector<std::size_t> rows;           // (points): row of head_scatter
  std::vector<std::uint32_t> start = {0};  // (heads + 1): index of the first point
  std::vector<std::uint16_t> queries;      // (heads): number of queries
  std::vector<float> lows;                 // (heads, axes)
  std::vector<float> highs;                // (heads, axes)
  std::vector<std::uint8_t> bytes;         // (points, 9)
};

// Appends the points of one head, queries before keys. `axes`: coordinate columns, null if missing.
void pack_points(const ResultFrame& frame, const std::vector<const std::vector<double>*>& axes,
                 std::vector<std::size_t> rows, PackedScatterPoints& points) {
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
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const double value = axes[i] ? (*axes[i])[row] : kNan;
      const double low = points.lows[first_axis + i];
      const double high = points.highs[first_axis + i];
      const double share = high > low ? std::clamp((value - low) / (high - low), 0.0, 1.0) : 0.5;
      points.bytes.push_back(
          std::isnan(value) ? 255 : static_cast<std::uint8_t>(std::lround(254 * share)));
    }
  }
  points.rows.insert(points.rows.end(), rows.begin(), rows.end());
  points.start.push_back(static_cast<std::uint32_t>(points.rows.size()));
}

void pack_scatter(const AnalysisResults& results, const HeadIndex& heads, ReportHeadData& report) {
  report.json["scatter"] = nullptr;
  if (!results.has_table("head_scatter")) return;
  const ResultFrame& frame = results.frame("head_scatter");
  const auto& components = results.draw_options().components;
  std::vector<const std::vector<double>*> axes;
  for (const std::string& name :
       {fmt::format("pc{}", components[0]), fmt::format("pc{}", components[1]), std::string("a"),
        std::string("b"), std::string("c0"), std::string("c1")})
    axes.push_back(frame.has_column(name) ? &frame.real_column(name) : nullptr);
  PackedScatterPoints points;
  for (auto& rows : heads.rows_by_head(frame)) pack_points(frame, axes, std::move(rows), points);
  std::vector<std::int64_t> last_positions(results.runs().size(), 1);
  const auto& positions = frame.integer_column("position");
  for (std::size_t row = 0; row < positions.size(); ++row) {
    auto& last = last_positions[frame.run_indices()[row]];
    last = std::max(last, positions[row]);
  }
  Json& scatter = report.json["scatter"];
  scatter = {{"start", encode_base64(points.start)}, {"queries", encode_base64(points.queries)},
             {"low", encode_base64(points.lows)},    {"high", encode_base64(points.highs)},
             {"last_positions", last_positions},     {"components", components}};
  // JSON "tokens": distinct token texts; "token", shape (points): index of each point in "tokens".
  if (frame.has_column("token")) {
    std::map<std::string, std::uint32_t> places;
    Json tokens = Json::array();
    const auto token_of_point = to_vector(points.rows, [&](std::size_t row) {
      const auto& text = frame.text_column("token")[row];
      const auto [found, fresh] = places.emplace(text, static_cast<std::uint32_t>(places.size()));
      if (fresh) tokens.push_back(text);
      return found->second;
    });
    scatter["tokens"] = tokens;
    scatter["token"] = encode_base64(token_of_point);
  }
  report.points = encode_base64(points.bytes);
}

// Returns the number of layers or, if `part` is &HeadOfRun::head, of query heads per layer: from
// the capture's metadata, else the highest index plus 1; 0 if only some of them were analysed.
std::int64_t count_layers_or_heads(const AnalysisResults& results, const HeadIndex& heads,
                                   std::int64_t HeadOfRun::*part) {
  const bool layers = part == &HeadOfRun::layer;
  const Json& facts = results.runs().front().facts;
  const auto recorded = facts.value(
      Json::json_pointer(fmt::format("/summary/capture_state/model_metadata/head_sampling_num_{}",
                                     layers ? "layers" : "query_heads")),
      Json());
  if (recorded.is_number_integer()) return recorded;
  const char* selected = layers ? "/summary/options/layers" : "/summary/options/heads";
  if (!facts.value(Json::json_pointer(selected), Json()).empty()) return 0;
  std::int64_t size = 0;
  for (const auto& [key, place] : heads.indices()) size = std::max(size, key.*part + 1);
  return size;
}

}  // namespace

ReportHeadData collect_report_head_data(const AnalysisResults& results) {
  const HeadIndex heads(results);
  Json classes = Json::array();
  for (const auto& c : style::kClasses)
    classes.push_back({{"name", c.name}, {"title", c.title}, {"colour", c.colour}});
  Json meanings = Json::object();  // the page itself describes all other columns
  for (const auto& column : geometry_columns()) meanings[column.name] = column.meaning + ".";
  ReportHeadData report;
  report.json = {{"count", heads.size()},
                 {"run", heads.encode_field(&HeadOfRun::run)},
                 {"layer", heads.encode_field(&HeadOfRun::layer)},
                 {"head", heads.encode_field(&HeadOfRun::head)},
                 {"rope", text_column_json(results, heads, kHeadTables, "rope")},
                 {"attention", text_column_json(results, heads, kHeadTables, "attention")},
                 {"classes", classes},
                 {"class", text_column_json(results, heads, {"taxonomy"}, "class")},
                 {"class_axis", text_column_json(results, heads, {"taxonomy"}, "class_axis")},
                 {"gaussian", text_column_json(results, heads, {"head_metrics"}, "gaussian")},
                 {"measures", measures_json(results, heads)},
                 {"meanings", meanings},
                 {"profile", profiles_json(results, heads)}};
  pack_scatter(results, heads, report);
  return report;
}

void check_same_heads(const AnalysisResults& first, const AnalysisResults& second) {
  for (const auto* one : {&first, &second})
    if (!one->has_single_run())
      reject(
          "--compare: {} has {} runs; expected one run on both sides, such as a folder under "
          "runs/ of a sweep",
          one->folder(), one->runs().size());
  const HeadIndex heads(first);
  const HeadIndex others(second);
  for (const auto part : {&HeadOfRun::layer, &HeadOfRun::head}) {
    const auto size = count_layers_or_heads(first, heads, part);
    const auto other = count_layers_or_heads(second, others, part);
    if (size != other && size != 0 && other != 0)
      reject(
          "--compare: the model of {} has {} {}, that of {} has {}; expected two models with "
          "the same layers and heads",
          first.folder(), size, part == &HeadOfRun::layer ? "layers" : "heads", second.folder(),
          other);
  }
  const auto matches = [&](const auto& head) { return others.indices().contains(head.first); };
  if (std::ranges::none_of(heads.indices(), matches))
    reject("--compare: no head is in both {} and {}; analyse the same layers and heads of both",
           first.folder(), second.folder());
}

}  // namespace qkscope
