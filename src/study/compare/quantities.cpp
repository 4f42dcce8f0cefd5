#include "study/compare/quantities.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "base/core/numbers.h"
#include "base/core/text.h"

namespace qkscope {
namespace {

// A quantity parsed from its name.
struct Quantity {
  HeadColumn column;
  Statistic statistic;
  std::optional<std::int64_t> layer;  // nullopt: heads of all layers
};

bool take_beginning(std::string& name, std::string_view beginning) {
  if (!name.starts_with(beginning)) return false;
  name.erase(0, beginning.size());
  return true;
}

bool take_ending(std::string& name, std::string_view ending) {
  if (!name.ends_with(ending)) return false;
  name.resize(name.size() - ending.size());
  return true;
}

// Removes `word` and the number after it from the end of the name and returns the number.
std::optional<double> take_number_after(std::string& name, std::string_view word) {
  const auto at = name.rfind(word);
  if (at == std::string::npos) return {};
  double number = 0;
  const auto* begin = name.data() + at + word.size();
  const auto* end = name.data() + name.size();
  const auto parsed = std::from_chars(begin, end, number);
  if (begin == end || parsed.ec != std::errc() || parsed.ptr != end) return {};
  name.resize(at);
  return number;
}

// Statistics with a published name of their own.
std::optional<Quantity> special_quantity(const std::string& name) {
  using Kind = Statistic::Kind;
  if (name == "heads" || name == "query_heads" || name == "heads_analysed")
    return Quantity{{"", "taxonomy", "layer"}, {Kind::heads, 0}, {}};
  if (name == "share_positive_bias")
    return Quantity{{"", "rotated", "bias_strength"}, {Kind::share_above, 0}, {}};
  if (name == "heads_negative_bias")
    return Quantity{{"", "rotated", "bias_strength"}, {Kind::heads_below, 0}, {}};
  if (name == "share_var_b_above_a")
    return Quantity{{"", "rotated", "var_frac_b", false, "var_frac_a"}, {Kind::share_above, 1}, {}};
  return {};
}

Statistic take_statistic(std::string& name) {
  using Kind = Statistic::Kind;
  if (const auto begin = take_number_after(name, "_depth_")) return {Kind::depth, *begin};
  if (take_ending(name, "_std")) return {Kind::deviation, 0};
  if (take_ending(name, "_p25")) return {Kind::quantile, 0.25};
  if (take_ending(name, "_p75")) return {Kind::quantile, 0.75};
  if (take_ending(name, "_median") || take_beginning(name, "median_")) return {Kind::quantile, 0.5};
  if (take_ending(name, "_heads")) return {Kind::heads_with, 0};
  if (take_beginning(name, "max_")) return {Kind::maximum, 0};
  if (take_beginning(name, "share_positive_")) return {Kind::share_above, 0};
  if (!take_beginning(name, "mean_")) take_beginning(name, "class_");
  return {Kind::mean, 0};
}

// Finds a column of this name in the tables with one row per head.
std::optional<HeadColumn> find_column(const std::string& name, RunNumbers& run) {
  for (const auto& column : named_columns())
    if (column.quantity == name) return column;
  for (const char* prefix : {"", "q_"})
    for (const char* table : {"rotated", "qk", "head_metrics"}) {
      const HeadColumn column{name, table, prefix + name};
      if (run.heads(column)) return column;
    }
  return {};
}

std::optional<Quantity> parse_quantity(std::string name, RunNumbers& run) {
  if (auto special = special_quantity(name)) return special;
  Quantity quantity;
  if (int layer = 0, length = 0;
      std::sscanf(name.c_str(), "layer_%d_%n", &layer, &length) == 1 && length > 0) {
    quantity.layer = layer;
    name.erase(0, static_cast<std::size_t>(length));
  }
  quantity.statistic = take_statistic(name);
  const auto component = take_number_after(name, "_pc");
  // The published figure is titled r_k_a, but its numbers are absolute values.
  if (quantity.statistic.kind == Statistic::Kind::depth && name == "r_k_a") name = "abs_r_k_a";
  const auto column = find_column(name, run);
  if (!column) return {};
  quantity.column = *column;
  if (component) {
    if (column->table != "qk") return {};
    quantity.column.pc = static_cast<std::int64_t>(*component);
  }
  return quantity;
}

OurNumber evaluate(const Quantity& quantity, RunNumbers& run) {
  auto heads = run.heads(quantity.column);
  if (!heads)
    return no_number(fmt::format("the results have no {} in a table {}", quantity.column.column,
                                 quantity.column.table));
  if (quantity.layer)
    std::erase_if(*heads, [&](const HeadNumber& head) { return head.layer != *quantity.layer; });
  OurNumber ours{.value = statistic_of(*heads, quantity.statistic),
                 .column = shown(quantity.statistic) + quantity.column.shown()};
  if (quantity.layer) ours.column += fmt::format(", layer {}", *quantity.layer);
  if (std::isnan(ours.value)) return no_number("no head of ours has this number");
  const auto& name =
      quantity.column.error.empty() ? quantity.column.quantity : quantity.column.error;
  if (quantity.layer || quantity.column.pc != 0) return ours;
  if (quantity.statistic.kind == Statistic::Kind::heads) ours.se = 0;
  if (quantity.statistic.kind == Statistic::Kind::mean) ours.se = run.error_of(name);
  if (quantity.statistic.kind == Statistic::Kind::heads_with)
    ours.se = run.error_of(name) * static_cast<double>(heads->size());
  // A jackknife error of 0 (no head or all heads in the class in every replicate) is unknown.
  if (!quantity.column.is.empty() && ours.se == 0) ours.se = kNan;
  return ours;
}

// Looks up the standard error of statistics other than means under their own name.
OurNumber with_error(OurNumber ours, const std::string& name, const Quantity& quantity,
                     RunNumbers& run) {
  const bool share = !quantity.column.is.empty();
  if (std::isnan(ours.se) && !quantity.layer && !share) ours.se = run.error_of(name);
  return ours;
}

// A quantity of a single head, for example "head_L05H13_pc0_r_q".
struct OneHead {
  std::int64_t layer = 0;
  std::int64_t head = 0;
  std::string what;
};

std::optional<OneHead> parse_head(const std::string& name) {
  int layer = 0, head = 0, length = 0;
  if (std::sscanf(name.c_str(), "head_L%dH%d_%n", &layer, &head, &length) != 2 || length == 0)
    return {};
  return OneHead{layer, head, name.substr(static_cast<std::size_t>(length))};
}

OurNumber number_of_head(const OneHead& wanted, const HeadColumn& column, RunNumbers& run) {
  const auto heads = run.heads(column);
  if (!heads) return no_number(fmt::format("the results have no {}", column.shown()));
  for (const auto& head : *heads)
    if (head.layer == wanted.layer && head.head == wanted.head)
      return {
          .value = head.value,
          .column = fmt::format("{} of layer {} head {}", column.shown(), head.layer, head.head),
          .sizes = column.absolute};
  return no_number(fmt::format("layer {} head {} was not analysed", wanted.layer, wanted.head));
}

// Signs of components and rotation directions of planes are arbitrary: absolute values compare.
OurNumber number_of_head(const OneHead& wanted, RunNumbers& run) {
  if (wanted.what == "omega" || wanted.what == "position_r")
    return number_of_head(wanted, {"", "rotated", wanted.what, true}, run);
  if (int pc = 0, length = 0;
      std::sscanf(wanted.what.c_str(), "pc%d_%n", &pc, &length) == 1 && length > 0) {
    const auto field = wanted.what.substr(static_cast<std::size_t>(length));
    HeadColumn column{"", "qk", field == "variance" ? "explained_variance" : field, true};
    column.pc = pc;
    return number_of_head(wanted, column, run);
  }
  if (int pair = 0; std::sscanf(wanted.what.c_str(), "complement_pair_%d", &pair) == 1)
    return complement_share(run, wanted.layer, wanted.head, pair);
  return no_number("not computed by qkscope");
}

// Published fifths divide the range that has values; an analysis may divide the whole context.
bool takes_other_fifths(RunNumbers& run) {
  return run.options().value("fifths", Json("range")) != "range";
}

std::optional<PublishedNumber> as_profile(const PublishedNumber& number, RunNumbers& run) {
  PublishedNumber profile = number;
  profile.form = PublishedNumber::Form::profile;
  const ProfileBin first{0.0, 0.2, true};
  const ProfileBin last{0.8, 1.0, true};
  if (takes_other_fifths(run)) {
    if (number.quantity == "ap_first20" || number.quantity == "ap_drop") profile.bin = first;
    if (number.quantity == "ap_last20") profile.bin = last;
    if (number.quantity == "ap_drop") profile.minus = last;
    if (profile.bin.fraction) return profile;
  }
  const ProfileBin dip{0.4, 0.6, true};
  const ProfileBin recovery{0.6, 0.8, true};
  if (number.quantity == "ap_dip_d4_5") {
    profile.bin = dip;
  } else if (number.quantity == "ap_recovery_d6_7") {
    profile.bin = recovery;
  } else if (number.quantity == "ap_recovery") {
    profile.bin = recovery;
    profile.minus = dip;
  } else {
    return {};
  }
  return profile;
}

bool has_other_thresholds(RunNumbers& run) {
  return run.options().value("taxonomy_high", Json(0.7)) != 0.7 ||
         run.options().value("taxonomy_low", Json(0.3)) != 0.3;
}

OurNumber our_quantity(const PublishedNumber& published, RunNumbers& run) {
  if (const auto head = parse_head(published.quantity)) return number_of_head(*head, run);
  if (const auto profile = as_profile(published, run)) return profile_number(*profile, run);
  if (const auto quantity = parse_quantity(published.quantity, run)) {
    if (!quantity->column.is.empty() && has_other_thresholds(run))
      return no_number("our classes have other thresholds than the published ones, 0.7 and 0.3");
    return with_error(evaluate(*quantity, run), published.quantity, *quantity, run);
  }
  if (published.kind == "setting") return no_number("a setting of the study, nothing measured");
  std::vector<std::string> names;
  if (published.kind.empty())  // a user's file may contain a typo
    for (const auto& column : named_columns()) names.push_back(column.quantity);
  const auto near = nearest(published.quantity, names);
  return no_number(near.empty() ? "not computed by qkscope"
                                : fmt::format("not computed by qkscope; is {} meant?", near));
}

}  // namespace

const std::vector<HeadColumn>& named_columns() {
  static const std::vector<HeadColumn> columns = [] {
    std::vector<HeadColumn> list = {
        {"r_q", "qk", "r_q"},
        {"r_k", "qk", "r_k"},
        {"abs_r_k", "qk", "r_k", true},
        {"pc0_variance", "qk", "explained_variance"},
    };
    for (const char* name :
         {"position_dominated", "q_positional", "k_positional", "content_focused", "mixed"}) {
      HeadColumn column{name, "taxonomy", "class"};
      column.is = name;
      list.push_back(column);
    }
    for (const char* name :
         {"position_dominated", "q_positional", "k_positional", "content_focused", "mixed"}) {
      HeadColumn column{std::string(name) + "_axis", "taxonomy", "class_axis"};
      column.is = name;
      list.push_back(column);
    }
    const std::vector<HeadColumn> more = {
        {"abs_r_q_axis", "taxonomy", "r_q_axis", true},
        {"abs_r_k_axis", "taxonomy", "r_k_axis", true},
        {"bias_strength", "rotated", "bias_strength"},
        {"alpha_k", "rotated", "alpha_k", true, "", "", 0, "abs_alpha_k"},
        {"mu_q_a", "rotated", "mu_q_a"},
        {"slope_ratio", "rotated", "alpha_k", true, "alpha_q"},
        {"abs_r_q_a", "rotated", "r_q_a", true},
        {"abs_r_k_a", "rotated", "r_k_a", true},
        {"separation_strength", "rotated", "separation_strength"},
        {"var_frac_a", "rotated", "var_frac_a"},
        {"var_frac_b", "rotated", "var_frac_b"},
        {"plane_var_fraction", "rotated", "plane_var_fraction"},
        {"ap_overall", "head_metrics", "ap_profile_overall", false, "", "", 0,
         "ap_profile_overall"},
        {"ap_first20", "head_metrics", "ap_first20"},
        {"ap_last20", "head_metrics", "ap_last20"},
        {"ap_drop", "head_metrics", "ap_drop"},
    };
    list.insert(list.end(), more.begin(), more.end());
    return list;
  }();
  return columns;
}

OurNumber no_number(std::string why) {
  return {.missing = std::move(why)};
}

OurNumber our_number(const PublishedNumber& published, RunNumbers& run) {
  using Form = PublishedNumber::Form;
  if (std::isnan(published.value) && published.kind != "setting")
    return no_number(fmt::format("no number was printed but {}", in_quotes(published.text)));
  switch (published.form) {
    case Form::quantity:
      return our_quantity(published, run);
    case Form::profile:
      return profile_number(published, run);
    case Form::line:
      return line_number(published, run);
    case Form::heatmap:
      return heatmap_number(published, run);
    case Form::weight:
      return weight_number(published, run);
    case Form::components:
      return component_number(published, run);
  }
  return no_number("not computed by qkscope");
}

const std::vector<std::string>& compared_quantities() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& column : named_columns())  // outliers dominate the mean of a ratio
      list.push_back(column.over.empty() ? column.quantity : column.quantity + "_median");
    return list;
  }();
  return names;
}

OurNumber our_statistic(const std::string& quantity, RunNumbers& run) {
  const auto parsed = parse_quantity(quantity, run);
  return parsed ? with_error(evaluate(*parsed, run), quantity, *parsed, run)
                : no_number("not computed by qkscope");
}

}  // namespace qkscope
