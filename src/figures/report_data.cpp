#include "figures/report_data.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "core/base64.h"
#include "core/folder.h"
#include "figures/style.h"

namespace qkscope {
namespace {

static_assert(std::endian::native == std::endian::little, "the page reads little-endian numbers");

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
std::string packed(const std::vector<T>& values) {
  return base64(std::as_bytes(std::span(values)));
}

const char* head_column(const std::string& table) {
  const bool old_names = table == "head_metrics" || table == "head_component_weights";
  return old_names ? "q_head" : "head";
}

// Every head that some table knows, by run, layer and head.
class HeadIndex {
 public:
  explicit HeadIndex(const Results& results) {
    for (const char* name : {"qk", "rotated", "head_metrics"}) {
      if (!results.has(name)) continue;
      const Frame& frame = results.frame(name);
      for (std::size_t row = 0; row < frame.rows(); ++row)
        heads_.insert({key(frame, name, row), 0});
    }
    std::size_t next = 0;
    for (auto& [key, place] : heads_) place = next++;
  }

  std::size_t size() const { return heads_.size(); }

  // Calls body(row, place of its head) for every row of the table.
  template <typename Body>
  void each_row(const Frame& frame, const std::string& table, const Body& body) const {
    for (std::size_t row = 0; row < frame.rows(); ++row)
      if (const auto found = heads_.find(key(frame, table, row)); found != heads_.end())
        body(row, found->second);
  }

  template <typename Body>
  void each_head(const Body& body) const {
    for (const auto& [key, place] : heads_)
      body(place, std::get<0>(key), std::get<1>(key), std::get<2>(key));
  }

 private:
  using Key = std::tuple<int, std::int64_t, std::int64_t>;  // run, layer, head
  static Key key(const Frame& frame, const std::string& table, std::size_t row) {
    return {frame.run()[row], frame.integers("layer")[row],
            frame.integers(head_column(table))[row]};
  }

  std::map<Key, std::size_t> heads_;
};

struct Measure {
  const char* table;
  const char* column;
};

constexpr Measure kMeasures[] = {{"qk", "r_q"},
                                 {"qk", "r_k"},
                                 {"qk", "explained_variance"},
                                 {"qk", "fisher"},
                                 {"qk", "positional_variance_q"},
                                 {"qk", "positional_variance_k"},
                                 {"rotated", "position_r"},
                                 {"rotated", "r_q_a"},
                                 {"rotated", "r_k_a"},
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
                                 {"head_metrics", "ap_overall"},
                                 {"head_metrics", "ap_profile_overall"},
                                 {"head_metrics", "ap_first20"},
                                 {"head_metrics", "ap_last20"},
                                 {"head_metrics", "ap_drop"}};

Json measures_of(const Results& results, const HeadIndex& heads) {
  Json list = Json::array();
  for (const auto& measure : kMeasures) {
    if (!results.has(measure.table)) continue;
    const Frame& frame = results.frame(measure.table);
    const auto& from = frame.reals(measure.column);
    const auto* components = std::string(measure.table) == "qk" ? &frame.integers("pc") : nullptr;
    std::vector<float> values(heads.size(), kNan);
    heads.each_row(frame, measure.table, [&](std::size_t row, std::size_t place) {
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
    heads.each_row(frame, table, [&](std::size_t row, std::size_t place) {
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
  heads.each_row(frame, "head_profile",
                 [&](std::size_t row, std::size_t place) { rows[place].push_back(row); });
  std::vector<std::uint32_t> start = {0};
  std::vector<float> positions;
  std::vector<float> values;
  for (const auto& of_head : rows) {
    for (const auto row : of_head) {
      positions.push_back(static_cast<float>(frame.reals("position")[row]));
      values.push_back(static_cast<float>(frame.reals("ap")[row]));
    }
    start.push_back(static_cast<std::uint32_t>(values.size()));
  }
  return {{"start", packed(start)}, {"position", packed(positions)}, {"ap", packed(values)}};
}

constexpr std::array<const char*, 6> kAxes = {"pc0", "pc1", "a", "b", "c0", "c1"};

std::uint8_t quantised(double value, double low, double high) {
  if (std::isnan(value)) return 255;
  if (!(high > low)) return 127;
  return static_cast<std::uint8_t>(std::lround(254 * (value - low) / (high - low)));
}

// Points of heads in turn, queries before keys.
class ScatterPacker {
 public:
  explicit ScatterPacker(const Frame& frame) : frame_(frame) {
    for (std::size_t i = 0; i < kAxes.size(); ++i) axes_[i] = &frame.reals(kAxes[i]);
    for (const auto position : frame.integers("position")) last_ = std::max(last_, position);
  }

  void add_head(std::vector<std::size_t> rows) {
    const auto& sides = frame_.texts("side");
    std::stable_sort(rows.begin(), rows.end(), [&](std::size_t x, std::size_t y) {
      return (sides[x] == "q") > (sides[y] == "q");
    });
    queries_.push_back(static_cast<std::uint16_t>(
        std::count_if(rows.begin(), rows.end(), [&](auto row) { return sides[row] == "q"; })));
    std::array<double, 6> low;
    std::array<double, 6> high;
    for (std::size_t i = 0; i < kAxes.size(); ++i) {
      low[i] = std::numeric_limits<double>::infinity();
      high[i] = -low[i];
      for (const auto row : rows) {
        if (std::isnan((*axes_[i])[row])) continue;
        low[i] = std::min(low[i], (*axes_[i])[row]);
        high[i] = std::max(high[i], (*axes_[i])[row]);
      }
      lows_.push_back(static_cast<float>(low[i]));
      highs_.push_back(static_cast<float>(high[i]));
    }
    for (const auto row : rows) {
      bytes_.push_back(quantised(static_cast<double>(frame_.integers("position")[row]), 0,
                                 static_cast<double>(last_)));
      for (std::size_t i = 0; i < kAxes.size(); ++i)
        bytes_.push_back(quantised((*axes_[i])[row], low[i], high[i]));
    }
    start_.push_back(static_cast<std::uint32_t>(bytes_.size() / (1 + kAxes.size())));
  }

  Json json() const {
    return {{"start", packed(start_)},
            {"queries", packed(queries_)},
            {"low", packed(lows_)},
            {"high", packed(highs_)},
            {"last_position", last_}};
  }
  std::string points() const { return packed(bytes_); }

 private:
  const Frame& frame_;
  std::array<const std::vector<double>*, 6> axes_;
  std::int64_t last_ = 1;
  std::vector<std::uint32_t> start_ = {0};  // (heads + 1), in points
  std::vector<std::uint16_t> queries_;      // (heads)
  std::vector<float> lows_;                 // (heads, 6)
  std::vector<float> highs_;                // (heads, 6)
  std::vector<std::uint8_t> bytes_;         // (points, 7)
};

void add_scatter(const Results& results, const HeadIndex& heads, ReportHeads& report) {
  report.json["scatter"] = nullptr;
  if (!results.has("head_scatter")) return;
  const Frame& frame = results.frame("head_scatter");
  std::vector<std::vector<std::size_t>> rows(heads.size());
  heads.each_row(frame, "head_scatter",
                 [&](std::size_t row, std::size_t place) { rows[place].push_back(row); });
  ScatterPacker packer(frame);
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

Json report_runs(const Results& results) {
  Json entries = Json::array();
  const std::string list = results.folder() + "/runs.json";
  if (path_exists(list)) {
    const Json sweep = load_json(list);
    if (sweep.is_object() && sweep.value("runs", Json()).is_array()) entries = sweep["runs"];
  }
  Json runs = Json::array();
  const auto with_summary = [&](Json run, const std::string& folder) {
    const std::string summary = folder + "/summary.json";
    if (path_exists(summary)) run["summary"] = load_json(summary);
    runs.push_back(std::move(run));
  };
  // First the runs with rows, in their order: heads name them by their place here.
  for (const auto& run : results.runs()) {
    Json known = {{"label", run.label}, {"phase", run.phase}, {"order", run.order}};
    std::string folder = results.folder();
    for (const auto& entry : entries) {
      if (!entry.is_object() || entry.value("label", Json()) != run.label) continue;
      known.update(entry);
      if (entry.value("results", Json()).is_string())
        folder += "/" + entry["results"].get<std::string>();
    }
    with_summary(std::move(known), folder);
  }
  for (const auto& entry : entries)
    if (entry.is_object() &&
        std::none_of(results.runs().begin(), results.runs().end(),
                     [&](const Run& run) { return entry.value("label", Json()) == run.label; }))
      runs.push_back(entry);
  return runs;
}

}  // namespace qkscope
