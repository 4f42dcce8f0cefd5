#include <algorithm>
#include <cmath>
#include <cstdio>
#include <tuple>

#include <fmt/format.h>

#include "analysis/results/results_folder.h"
#include "base/core/project.h"
#include "base/numerics/sample_statistics.h"
#include "study/compare/run_tables.h"

namespace qkscope {
namespace {

enum class StatisticKind {
  mean,
  deviation,
  quantile,
  maximum,
  share_above,
  heads_below,
  heads_with,  // number of heads with a value other than 0
  heads,       // number of heads
  depth,       // mean over a tenth of the depth
};

struct HeadStatistic {
  StatisticKind kind = StatisticKind::mean;
  double at = 0;  // quantile, bound, or start of the depth bin
};

struct ParsedMetric {
  HeadMetric column;
  HeadStatistic statistic;
  std::optional<std::int64_t> layer;  // nullopt: heads of all layers
};

bool remove_prefix(std::string& name, std::string_view beginning) {
  if (!name.starts_with(beginning)) return false;
  name.erase(0, beginning.size());
  return true;
}

bool remove_suffix(std::string& name, std::string_view ending) {
  if (!name.ends_with(ending)) return false;
  name.resize(name.size() - ending.size());
  return true;
}

// Removes `word` and the number after it from the end of the name and returns the number.
std::optional<double> remove_numbered_suffix(std::string& name, std::string_view word) {
  const auto at = name.rfind(word);
  if (at == std::string::npos) return {};
  const auto number = parse_number<double>(std::string_view(name).substr(at + word.size()));
  if (number) name.resize(at);
  return number;
}

// Parses metrics whose name is not of the form prefix + column + suffix; nullopt otherwise.
std::optional<ParsedMetric> parse_irregular_metric(const std::string& name) {
  if (name == "heads" || name == "query_heads" || name == "heads_analysed")
    return ParsedMetric{{"", "taxonomy", "layer"}, {StatisticKind::heads, 0}, {}};
  if (name == "share_positive_bias")
    return ParsedMetric{{"", "rotated", "bias_strength"}, {StatisticKind::share_above, 0}, {}};
  if (name == "heads_negative_bias")
    return ParsedMetric{{"", "rotated", "bias_strength"}, {StatisticKind::heads_below, 0}, {}};
  if (name == "share_var_b_above_a")
    return ParsedMetric{
        {"", "rotated", "var_frac_b", false, "var_frac_a"}, {StatisticKind::share_above, 1}, {}};
  return {};
}

// Parses the statistic from a prefix or suffix of a metric's name, and removes it from the name.
HeadStatistic consume_statistic(std::string& name) {
  if (const auto begin = remove_numbered_suffix(name, "_depth_"))
    return {StatisticKind::depth, *begin};
  if (remove_suffix(name, "_std")) return {StatisticKind::deviation, 0};
  if (remove_suffix(name, "_p25")) return {StatisticKind::quantile, 0.25};
  if (remove_suffix(name, "_p75")) return {StatisticKind::quantile, 0.75};
  if (remove_suffix(name, "_median") || remove_prefix(name, "median_"))
    return {StatisticKind::quantile, 0.5};
  if (remove_suffix(name, "_heads")) return {StatisticKind::heads_with, 0};
  if (remove_prefix(name, "max_")) return {StatisticKind::maximum, 0};
  if (remove_prefix(name, "share_positive_")) return {StatisticKind::share_above, 0};
  if (!remove_prefix(name, "mean_")) remove_prefix(name, "class_");
  return {StatisticKind::mean, 0};
}

// Lists the metrics of heads with their tables and columns, in display order.
const std::vector<HeadMetric>& known_head_metrics() {
  static const std::vector<HeadMetric> columns = [] {
    std::vector<HeadMetric> list;
    const auto add_columns = [&](const char* table, const std::vector<std::string>& names) {
      for (const auto& name : names) list.push_back({name, table, name});
    };
    add_columns("qk", {"r_q", "r_k"});
    list.push_back({"abs_r_k", "qk", "r_k", true});
    list.push_back({"pc0_variance", "qk", "explained_variance"});
    for (const std::string suffix : {"", "_axis"})
      for (const std::string name :
           {"position_dominated", "q_positional", "k_positional", "content_focused", "mixed"})
        list.push_back({name + suffix, "taxonomy", "class" + suffix, false, "", name});
    list.push_back({"abs_r_q_axis", "taxonomy", "r_q_axis", true});
    list.push_back({"abs_r_k_axis", "taxonomy", "r_k_axis", true});
    add_columns("rotated", {"bias_strength"});
    list.push_back({"alpha_k", "rotated", "alpha_k", true, "", "", 0, "abs_alpha_k"});
    add_columns("rotated", {"mu_q_a"});
    list.push_back({"slope_ratio", "rotated", "alpha_k", true, "alpha_q"});
    list.push_back({"abs_r_q_a", "rotated", "r_q_a", true});
    list.push_back({"abs_r_k_a", "rotated", "r_k_a", true});
    add_columns("rotated",
                {"separation_strength", "var_frac_a", "var_frac_b", "plane_var_fraction"});
    list.push_back({"ap_overall", "head_metrics", "ap_profile_overall", false, "", "", 0,
                    "ap_profile_overall"});
    add_columns("head_metrics", {"ap_first20", "ap_last20", "ap_drop"});
    for (const auto& column : geometry_columns())
      if (!column.is_null) list.push_back({column.name, "geometry", column.name});
    return list;
  }();
  return columns;
}

// Finds a column of this name in the tables with one row per head.
std::optional<HeadMetric> find_head_metric(const std::string& name, RunTables& run) {
  for (const auto& column : known_head_metrics())
    if (column.name == name) return column;
  for (const char* prefix : {"", "q_"})
    for (const char* table : {"rotated", "qk", "head_metrics"}) {
      const HeadMetric column{name, table, prefix + name};
      if (run.find_head_values(column)) return column;
    }
  return {};
}

std::optional<ParsedMetric> parse_metric(std::string name, RunTables& run) {
  if (auto special = parse_irregular_metric(name)) return special;
  ParsedMetric metric;
  if (int layer = 0, length = 0;
      std::sscanf(name.c_str(), "layer_%d_%n", &layer, &length) == 1 && length > 0) {
    metric.layer = layer;
    name.erase(0, static_cast<std::size_t>(length));
  }
  metric.statistic = consume_statistic(name);
  const auto component = remove_numbered_suffix(name, "_pc");
  // The published figure is titled r_k_a, but its numbers are absolute values.
  if (metric.statistic.kind == StatisticKind::depth && name == "r_k_a") name = "abs_r_k_a";
  const auto column = find_head_metric(name, run);
  if (!column) return {};
  metric.column = *column;
  if (component) {
    if (column->table != "qk") return {};
    metric.column.pc = static_cast<std::int64_t>(*component);
  }
  return metric;
}

// Returns the values of the heads whose relative depth (layer / last layer) is in the bin of width
// 0.1 that starts at `begin`. Integer arithmetic avoids rounding errors for layers on a bin edge.
std::vector<double> metric_values_at_depth(const std::vector<HeadValue>& heads, double begin) {
  std::int64_t last = 0;
  for (const auto& head : heads) last = std::max(last, head.layer);
  const auto tenth = static_cast<std::int64_t>(std::lround(10 * begin));
  std::vector<double> values;
  for (const auto& head : heads)
    if (std::min<std::int64_t>(9, last == 0 ? 0 : 10 * head.layer / last) == tenth)
      values.push_back(head.value);
  return values;
}

// Returns the name of the statistic ("mean of ") and its value, NaN if there are too few heads.
std::pair<std::string, double> compute_head_statistic(const std::vector<HeadValue>& heads,
                                                      const HeadStatistic& statistic) {
  const auto values = to_vector(heads, &HeadValue::value);
  const double at = statistic.at;
  const auto n = static_cast<double>(values.size());
  const auto count = [&](auto condition) {
    return static_cast<double>(std::ranges::count_if(values, condition));
  };
  switch (statistic.kind) {
    case StatisticKind::mean:
      return {"mean of ", mean_of(values)};
    case StatisticKind::deviation:
      return {"standard deviation of ", standard_deviation_of(values)};
    case StatisticKind::quantile:
      return {fmt::format("{:g} % quantile of ", 100 * at), quantile_of(values, at)};
    case StatisticKind::maximum:
      return {"largest ", values.empty() ? kNan : std::ranges::max(values)};
    case StatisticKind::share_above:
      return {fmt::format("share above {:g} of ", at),
              values.empty() ? kNan : count([&](double value) { return value > at; }) / n};
    case StatisticKind::heads_below:
      return {fmt::format("heads below {:g} in ", at),
              count([&](double value) { return value < at; })};
    case StatisticKind::heads_with:
      return {"heads with ", count([](double value) { return value != 0; })};
    case StatisticKind::heads:
      return {"heads with ", n};
    case StatisticKind::depth:
      return {fmt::format("mean at depth {:.1f} to {:.1f} of ", at, at + 0.1),
              mean_of(metric_values_at_depth(heads, at))};
  }
  return {"", kNan};
}

// Evaluates a statistic over the heads of a run. `own_name` is the metric's name with prefix and
// suffix; errors.csv lists the standard errors of some medians and shares by this name.
RecomputedValue evaluate_head_statistic(const ParsedMetric& metric, const std::string& own_name,
                                        RunTables& run) {
  const auto& column = metric.column;
  const auto& layer = metric.layer;
  const auto kind = metric.statistic.kind;
  auto heads = run.find_head_values(column);
  if (!heads)
    return {.missing =
                fmt::format("the results have no {} in a table {}", column.column, column.table)};
  if (layer) std::erase_if(*heads, [&](const HeadValue& head) { return head.layer != *layer; });
  const auto [description, value] = compute_head_statistic(*heads, metric.statistic);
  if (std::isnan(value)) return {.missing = "no head of ours has this number"};
  RecomputedValue ours{.value = value, .column = description + column.describe()};
  if (layer) {
    ours.column += fmt::format(", layer {}", *layer);
    return ours;
  }
  const auto error = run.standard_error(column.error.empty() ? column.name : column.error);
  if (column.pc == 0) {
    if (kind == StatisticKind::heads) ours.se = 0;
    if (kind == StatisticKind::mean) ours.se = error;
    if (kind == StatisticKind::heads_with) ours.se = error * static_cast<double>(heads->size());
  }
  const bool of_class = !column.equals.empty();
  // A jackknife error of 0 (no replicate differs, for example in an empty class) is unusable.
  if (of_class && ours.se == 0) ours.se = kNan;
  if (!of_class && std::isnan(ours.se)) ours.se = run.standard_error(own_name);
  return ours;
}

RecomputedValue evaluate_column_of_head(std::int64_t layer, std::int64_t head,
                                        const HeadMetric& column, RunTables& run) {
  const auto heads = run.find_head_values(column);
  if (!heads) return {.missing = fmt::format("the results have no {}", column.describe())};
  for (const auto& found : *heads)
    if (found.layer == layer && found.head == head)
      return {.value = found.value,
              .column = fmt::format("{} of layer {} head {}", column.describe(), layer, head),
              .sign_arbitrary = column.absolute};
  return {.missing = fmt::format("layer {} head {} was not analysed", layer, head)};
}

// Evaluates a metric of a single head, for example "head_L05H13_pc0_r_q"; nullopt for any other
// name. Absolute values are compared, as signs of components and of rotations are arbitrary.
std::optional<RecomputedValue> evaluate_metric_of_head(const std::string& name, RunTables& run) {
  int layer = 0, head = 0, length = 0;
  if (std::sscanf(name.c_str(), "head_L%dH%d_%n", &layer, &head, &length) != 2 || length == 0)
    return {};
  const auto what = name.substr(static_cast<std::size_t>(length));
  if (what == "omega" || what == "position_r")
    return evaluate_column_of_head(layer, head, {"", "rotated", what, true}, run);
  length = 0;
  if (int pc = 0; std::sscanf(what.c_str(), "pc%d_%n", &pc, &length) == 1 && length > 0) {
    const auto field = what.substr(static_cast<std::size_t>(length));
    HeadMetric column{"", "qk", field == "variance" ? "explained_variance" : field, true};
    column.pc = pc;
    return evaluate_column_of_head(layer, head, column, run);
  }
  if (int pair = 0; std::sscanf(what.c_str(), "complement_pair_%d", &pair) == 1)
    return evaluate_plane_variance_share(run, layer, head, pair);
  return RecomputedValue{.missing = "not computed by qkscope"};
}

// Converts a published metric that is a mean over profile bins, such as "ap_drop", to a
// PublishedNumber of PublishedNumberKind::profile. Returns nullopt for any other metric.
std::optional<PublishedNumber> parse_profile_metric(const PublishedNumber& number, RunTables& run) {
  const PositionInterval first{0.0, 0.2, true};
  const PositionInterval last{0.8, 1.0, true};
  const PositionInterval dip{0.4, 0.6, true};
  const PositionInterval recovery{0.6, 0.8, true};
  const std::tuple<const char*, PositionInterval, std::optional<PositionInterval>, bool> metrics[] =
      {{"ap_first20", first, {}, true},
       {"ap_last20", last, {}, true},
       {"ap_drop", first, last, true},
       {"ap_dip_d4_5", dip, {}, false},
       {"ap_recovery_d6_7", recovery, {}, false},
       {"ap_recovery", recovery, dip, false}};
  // Published position fifths span the non-empty bins; those of an analysis may span the context.
  const bool other_fifths = run.analysis_options().value("fifths", Json("range")) != "range";
  for (const auto& [name, bin, minus, of_fifths] : metrics) {
    if (number.metric != name || (of_fifths && !other_fifths)) continue;
    PublishedNumber profile = number;
    profile.value_kind = PublishedNumberKind::profile;
    profile.bin = bin;
    profile.minus = minus;
    return profile;
  }
  return {};
}

RecomputedValue evaluate_named_metric(const PublishedNumber& published, RunTables& run) {
  const auto& name = published.metric;
  if (const auto of_head = evaluate_metric_of_head(name, run)) return *of_head;
  if (const auto profile = parse_profile_metric(published, run))
    return recompute_profile_mean(*profile, run);
  if (const auto metric = parse_metric(name, run)) {
    const bool other_thresholds = run.analysis_options().value("taxonomy_high", Json(0.7)) != 0.7 ||
                                  run.analysis_options().value("taxonomy_low", Json(0.3)) != 0.3;
    if (!metric->column.equals.empty() && other_thresholds)
      return {.missing = "our classes have other thresholds than the published ones, 0.7 and 0.3"};
    return evaluate_head_statistic(*metric, name, run);
  }
  if (published.kind == "setting") return {.missing = "a setting of the study, nothing measured"};
  std::vector<std::string> names;
  if (published.kind.empty())  // a user's file may contain a typo
    names = to_vector(known_head_metrics(), &HeadMetric::name);
  const auto near = closest_spelling(name, names);
  return {.missing = near.empty() ? "not computed by qkscope"
                                  : fmt::format("not computed by qkscope; is {} meant?", near)};
}

}  // namespace

RecomputedValue recompute_published_number(const PublishedNumber& published, RunTables& run) {
  if (std::isnan(published.value) && published.kind != "setting")
    return {.missing = fmt::format("no number was printed but {}", quote_text(published.text))};
  return published.value_kind == PublishedNumberKind::metric
             ? evaluate_named_metric(published, run)
             : recompute_table_value(published, run);
}

RecomputedValue evaluate_metric(const std::string& metric, RunTables& run) {
  const auto parsed = parse_metric(metric, run);
  return parsed ? evaluate_head_statistic(*parsed, metric, run)
                : RecomputedValue{.missing = "not computed by qkscope"};
}

std::vector<std::string> list_compared_metrics() {
  std::vector<std::string> names;
  for (const auto& column : known_head_metrics())  // outliers dominate the mean of a ratio
    names.push_back(column.divisor.empty() ? column.name : column.name + "_median");
  return names;
}

}  // namespace qkscope
