#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "analysis/figures/style.h"
#include "analysis/report/report.h"
#include "analysis/report/report_points.h"
#include "base/core/numbers.h"

namespace qkscope {
namespace {

// Tables that name the heads of a run.
const std::vector<const char*> kHeadTables = {"qk", "rotated", "head_metrics"};

// Index of all heads that occur in a table, sorted by run, layer and head.
class HeadIndex {
 public:
  explicit HeadIndex(const Results& results) {
    for (const char* name : kHeadTables) {
      if (!results.has(name)) continue;
      const Frame& frame = results.frame(name);
      for (std::size_t row = 0; row < frame.rows(); ++row) heads_.insert({key(frame, row), 0});
    }
    std::size_t next = 0;
    for (auto& [key, place] : heads_) place = next++;
  }

  std::size_t size() const { return heads_.size(); }

  // Calls body(row, index of its head) for every row of the table.
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
  bool optional = false;  // older results do not have the column
  bool yes_no = false;    // a text column: 1 for "yes", 0 for "no"
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
                                         {"head_metrics", "ap_drop"},
                                         {"head_metrics", "ap_free_overall", true},
                                         {"head_metrics", "ap_free_first20", true},
                                         {"head_metrics", "ap_free_last20", true},
                                         {"head_metrics", "ap_free_drop", true},
                                         {"head_metrics", "gaussian", true, true},
                                         {"taxonomy", "r_q_axis", true},
                                         {"taxonomy", "r_k_axis", true},
                                         {"taxonomy", "pc_position", true},
                                         {"taxonomy", "pc_position_variance", true},
                                         {"attention", "sink_0", true},
                                         {"attention", "previous_token_head", true},
                                         {"attention", "induction_head", true},
                                         {"attention", "stream", true},
                                         {"attention", "entropy", true},
                                         {"attention", "distance_mean", true},
                                         {"attention", "perplexity", true}};

std::vector<double> yes_no_numbers(const std::vector<std::string>& texts) {
  std::vector<double> numbers;
  for (const auto& text : texts) numbers.push_back(text == "yes" ? 1.0 : text == "no" ? 0.0 : kNan);
  return numbers;
}

Json measures_of(const Results& results, const HeadIndex& heads) {
  Json list = Json::array();
  for (const auto& measure : kHeadMeasures) {
    if (!results.has(measure.table)) continue;
    const Frame& frame = results.frame(measure.table);
    if (measure.optional && !frame.has(measure.column)) continue;
    const auto number = measure.yes_no ? yes_no_numbers(frame.texts(measure.column))
                                       : frame.numbers(measure.column);
    std::vector<float> values(heads.size(), kNan);
    heads.each_row(frame, [&](std::size_t row, std::size_t place) {
      if (frame.is_first_component(row)) values[place] = static_cast<float>(number[row]);
    });
    list.push_back({{"name", measure.column}, {"data", packed(values)}});
  }
  return list;
}

// Encodes a text column: for each head the index of its text in `names`, 255 for any other text.
std::string text_codes(const Results& results, const HeadIndex& heads,
                       const std::vector<const char*>& tables, const char* column,
                       const std::vector<std::string>& names) {
  std::vector<std::uint8_t> codes(heads.size(), 255);
  for (const char* table : tables) {
    if (!results.has(table)) continue;
    const Frame& frame = results.frame(table);
    if (!frame.has(column)) continue;
    const auto& texts = frame.texts(column);
    heads.each_row(frame, [&](std::size_t row, std::size_t place) {
      const auto found = std::ranges::find(names, texts[row]);
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
  std::vector<float> free_values;
  std::vector<float> errors;
  const auto at = [&](const std::string& column, std::size_t row) {
    return frame.has(column) ? static_cast<float>(frame.reals(column)[row])
                             : std::numeric_limits<float>::quiet_NaN();
  };
  const std::string error = profile_error_column(frame);
  for (const auto& of_head : rows) {
    for (const auto row : of_head) {
      positions.push_back(static_cast<float>(frame.reals("position")[row]));
      values.push_back(static_cast<float>(frame.reals("ap")[row]));
      free_values.push_back(at("ap_free", row));
      errors.push_back(at(error, row));
    }
    start.push_back(static_cast<std::uint32_t>(values.size()));
  }
  return {{"start", packed(start)},
          {"position", packed(positions)},
          {"ap", packed(values)},
          {"ap_free", frame.has("ap_free") ? Json(packed(free_values)) : Json()},
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

// The different attention kinds of all heads, sorted; empty for older results.
std::vector<std::string> attention_kinds(const Results& results) {
  std::set<std::string> kinds;
  for (const char* table : kHeadTables)
    if (results.has(table))
      for (const auto& kind : results.frame(table).attention_kinds())
        if (!kind.empty()) kinds.insert(kind);
  return {kinds.begin(), kinds.end()};
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
  const auto attentions = attention_kinds(results);
  const bool both_classes = results.has("taxonomy") && results.frame("taxonomy").has("class_axis");
  ReportHeads report;
  report.json = {{"count", heads.size()},
                 {"run", packed(run)},
                 {"layer", packed(layer)},
                 {"head", packed(head)},
                 {"ropes", ropes},
                 {"rope", text_codes(results, heads, kHeadTables, "rope", ropes)},
                 {"attentions", attentions},
                 {"attention", text_codes(results, heads, kHeadTables, "attention", attentions)},
                 {"classes", class_styles},
                 {"class", text_codes(results, heads, {"taxonomy"}, "class", classes)},
                 {"class_axis", both_classes ? Json(text_codes(results, heads, {"taxonomy"},
                                                               "class_axis", classes))
                                             : Json()},
                 {"measures", measures_of(results, heads)},
                 {"profile", profiles_of(results, heads)}};
  add_scatter(results, heads, report);
  return report;
}

}  // namespace qkscope
