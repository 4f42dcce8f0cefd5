#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/yaml/yaml_config.h"
#include "capture/run/capture_plan.h"
#include "capture/stats_format/stats_file.h"
#include "capture/stats_run/stats_plan.h"

namespace qkscope {
namespace {

std::optional<std::int64_t> parse_count(std::string_view text) {
  const auto number = parse_number<std::int64_t>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

// Parses fp8, int8 or int4 followed by _channel, _token, _head or _group_N. Plain fp8 has one scale
// per head; fp8_exported uses the scales of an export. Returns nullopt for any other name.
std::optional<KeyReplacement> key_replacement_from_name(const std::string& name) {
  using Scale = KeyReplacement::Scale;
  const auto cut = name.find('_');
  const auto scheme = enum_from_name<KeyReplacement::Scheme>(name.substr(0, cut));
  if (!scheme) return {};
  const bool fp8 = *scheme == KeyReplacement::Scheme::fp8;
  KeyReplacement replacement;
  replacement.name = name;
  replacement.scheme = *scheme;
  if (cut == std::string::npos) return fp8 ? std::optional(replacement) : std::nullopt;
  const auto scale = name.substr(cut + 1);
  if (const auto found = enum_from_name<Scale>(scale); found && *found != Scale::group) {
    replacement.scale = *found;
    if (*found == Scale::exported && !fp8) return {};
    return replacement;
  }
  if (!scale.starts_with("group_")) return {};
  const auto group = parse_count(std::string_view(scale).substr(6));
  if (!group || *group < 1) return {};
  replacement.scale = Scale::group;
  replacement.group = *group;
  return replacement;
}

// Parses a rule for keeping keys: first_A_last_B, short_P (the P percent with the smallest L2 norm)
// or qfilter_P (the P percent with the best q-filter score). Returns nullopt for any other name.
std::optional<KeptKeys> kept_keys_from_name(const std::string& name) {
  KeptKeys kept;
  kept.name = name;
  const std::string_view text = name;
  using Rule = KeptKeys::Rule;
  for (const auto& [word, rule] :
       {std::pair{"short_", Rule::short_keys}, std::pair{"qfilter_", Rule::filtered_keys}}) {
    if (!text.starts_with(word)) continue;
    const auto percent = parse_count(text.substr(std::string_view(word).size()));
    if (!percent || *percent < 1 || *percent > 100) return {};
    kept.rule = rule;
    kept.share = static_cast<double>(*percent) / 100.0;
    return kept;
  }
  const auto last = text.find("_last_");
  if (!text.starts_with("first_") || last == std::string_view::npos || last < 6) return {};
  const auto first_keys = parse_count(text.substr(6, last - 6));
  const auto last_keys = parse_count(text.substr(last + 6));
  if (!first_keys || !last_keys || *last_keys < 1) return {};
  kept.first = *first_keys;
  kept.last = *last_keys;
  return kept;
}

constexpr std::int64_t kLargestWindow = 4096;

// Reads a list of names or a single name.
std::vector<std::string> read_names(YamlSection& section, const std::string& key,
                                    const std::string& what) {
  std::vector<std::string> list;
  const auto node = section.node(key);
  if (node.IsNull() || !node.IsDefined()) return list;
  if (node.IsScalar()) return {node.Scalar()};
  if (!node.IsSequence()) section.reject_value(key, what);
  for (const auto& item : node) {
    if (!item.IsScalar()) section.reject_value(key, what);
    list.push_back(item.Scalar());
  }
  return list;
}

template <typename T, typename Parse>
std::vector<T> parse_name_list(YamlSection& section, const std::string& key,
                               const std::string& what, Parse parse) {
  std::vector<T> values;
  for (const auto& name : read_names(section, key, what)) {
    const auto value = parse(name);
    if (!value) section.reject_value(key, what);
    values.push_back(*value);
  }
  return values;
}

// Reads the paths of FP8 scales and q-filters. A missing or superfluous path is a bad-input error.
void read_export_paths(YamlSection& section, StatisticsSettings& settings) {
  settings.fp8_scales = section.text("fp8_scales").value_or("");
  settings.q_filters = section.text("q_filters").value_or("");
  const bool scaled = std::ranges::any_of(
      settings.kl, [](const auto& r) { return r.scale == KeyReplacement::Scale::exported; });
  const bool filtered = std::ranges::any_of(
      settings.keep, [](const auto& k) { return k.rule == KeptKeys::Rule::filtered_keys; });
  if (scaled != !settings.fp8_scales.empty())
    section.reject_value("fp8_scales", "an fp8-kv export, together with fp8_exported in stats.kl");
  if (filtered != !settings.q_filters.empty())
    section.reject_value("q_filters", "a q-filters export, together with qfilter_P in stats.keep");
}

// Parses 1/16 or 0.0625: a fraction above 0 and at most 1.
std::optional<double> parse_fraction(std::string_view text) {
  double above = 0, below = 1;
  const char* const end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, above);
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '/')
    parsed = std::from_chars(parsed.ptr + 1, end, below);
  if (parsed.ec != std::errc() || parsed.ptr != end || !(above > 0 && above <= below) ||
      std::isinf(below))
    return {};
  return above / below;
}

void read_query_sampling(YamlSection& section, StatisticsSettings& settings) {
  const auto text = section.text("all_keys_rows");
  settings.seed = section.integer("seed", 0).value_or(0);
  if (!text) return;
  const auto fraction = parse_fraction(*text);
  if (!fraction) section.reject_value("all_keys_rows", "a fraction above 0 and at most 1, as 1/16");
  settings.all_keys_rows = *fraction;
  if (settings.all_keys_rows < 1 && !settings.columns.empty())
    section.reject_value("all_keys_rows", "1, because stats.columns needs all queries");
}

// Selects groups of statistics by letter: A (moments), B (near keys), C (all keys; implies B).
void select_statistics_groups(StatisticsSettings& settings,
                              const std::vector<std::string>& groups) {
  settings.moments = settings.near_keys = settings.all_keys = false;
  for (const auto& group : split(fmt::format("{}", fmt::join(groups, ",")), ',')) {
    if (group == "A")
      settings.moments = true;
    else if (group == "B")
      settings.near_keys = true;
    else if (group == "C")
      settings.near_keys = settings.all_keys = true;
    else
      reject("stats.groups: expected A, B and C, found {}", quote_text(group));
  }
}

StatisticsSettings read_statistics_settings(YamlSection section) {
  StatisticsSettings settings;
  if (const auto groups = read_names(section, "groups", "a list of A, B and C"); !groups.empty())
    select_statistics_groups(settings, groups);
  settings.kinds = parse_name_list<VectorKind>(section, "kinds", "a list of q, k and v",
                                               enum_from_name<VectorKind>);
  settings.stages = parse_name_list<VectorStage>(section, "stages", "a list of pre and post",
                                                 enum_from_name<VectorStage>);
  settings.layers = section.integers("layers");
  settings.first = section.integer("first", 0).value_or(settings.first);
  settings.buckets = section.integer("buckets", 1).value_or(settings.buckets);
  settings.bucket_size = section.integer("bucket_size", 1).value_or(0);
  settings.bucket_covariance = parse_name_list<VectorKind>(
      section, "bucket_covariance", "a list of q and k", enum_from_name<VectorKind>);
  settings.window = section.integer("window", 1).value_or(settings.window);
  if (!std::has_single_bit(static_cast<std::uint64_t>(settings.window)) ||
      settings.window > kLargestWindow)
    section.reject_value("window", "a power of two up to 4096");
  if (const auto stream = section.integers("stream")) {
    if (stream->size() != 2 || stream->front() < 0 || stream->back() < 1)
      section.reject_value("stream", "[first, last]: how many first and last keys, as [128, 256]");
    settings.stream_first = stream->front();
    settings.stream_last = stream->back();
  }
  settings.columns =
      read_layer_head_pairs(section, "columns", "pairs [layer, head], as [[3, 5], [3, 6]]");
  settings.kl = parse_name_list<KeyReplacement>(
      section, "kl", "names as fp8, fp8_exported, int8_channel, int4_token or int4_group_32",
      key_replacement_from_name);
  settings.keep = parse_name_list<KeptKeys>(
      section, "keep", "names as first_4_last_256, short_50 or qfilter_50", kept_keys_from_name);
  read_export_paths(section, settings);
  settings.exact_rows = section.integer("exact_rows", 0).value_or(0);
  read_query_sampling(section, settings);
  settings.retrieval = section.text("retrieval").value_or("");
  settings.min_match = section.positive_number("min_match").value_or(settings.min_match);
  for (const auto& [key, asked] :
       {std::pair("columns", !settings.columns.empty()), std::pair("kl", !settings.kl.empty()),
        std::pair("keep", !settings.keep.empty()), std::pair("exact_rows", settings.exact_rows > 0),
        std::pair("all_keys_rows", settings.all_keys_rows < 1)})
    if (asked && !settings.all_keys)
      section.reject_value(key, "group C as well: stats.groups: [A, C]");
  section.reject_unknown_keys();
  return settings;
}

}  // namespace

StatsConfig read_stats_config(const YamlDocument& document) {
  StatsConfig config;
  config.run = read_capture_config(document);
  YamlSection root(document, document.root, "");
  config.stats = read_statistics_settings(root.section("stats"));
  // Capture settings do not affect statistics, so they must not be part of the run's identity.
  config.run.capture = {};
  config.run.command = "stats";
  config.run.output.hf_repo_id.reset();
  config.run.output.hf_branch.reset();
  return config;
}

}  // namespace qkscope
