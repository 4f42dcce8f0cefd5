#include "capture/stats_format/stats_file.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/file_list.h"
#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "capture/stats_format/stats_tables.h"

namespace qkscope {
namespace {

using Scheme = KeyReplacement::Scheme;
using Scale = KeyReplacement::Scale;
using Rule = KeptKeys::Rule;

// Names of the enumerators of T in files and configurations.
template <typename T, std::size_t N>
using NameTable = std::array<std::pair<T, const char*>, N>;
template <typename T>
constexpr int kNames = 0;
template <>
constexpr NameTable<Scheme, 3> kNames<Scheme> = {
    {{Scheme::fp8, "fp8"}, {Scheme::int8, "int8"}, {Scheme::int4, "int4"}}};
template <>
constexpr NameTable<Scale, 5> kNames<Scale> = {{{Scale::channel, "channel"},
                                                {Scale::token, "token"},
                                                {Scale::group, "group"},
                                                {Scale::head, "head"},
                                                {Scale::exported, "exported"}}};
template <>
constexpr NameTable<Rule, 3> kNames<Rule> = {{{Rule::ends, "ends"},
                                              {Rule::short_keys, "short_keys"},
                                              {Rule::filtered_keys, "filtered_keys"}}};
template <>
constexpr NameTable<VectorKind, 3> kNames<VectorKind> = {
    {{VectorKind::query, "q"}, {VectorKind::key, "k"}, {VectorKind::value, "v"}}};
template <>
constexpr NameTable<VectorStage, 2> kNames<VectorStage> = {
    {{VectorStage::pre, "pre"}, {VectorStage::post, "post"}}};

template <typename T>
std::string name_of(T value) {
  return std::ranges::find(kNames<T>, value, &std::pair<T, const char*>::first)->second;
}

template <typename T>
T from_name(const Json& name, const std::string& where) {
  if (const auto value = enumerator_from_name<T>(name.get<std::string>())) return *value;
  bad_input("{}: settings: {} is not known; the file is damaged or of a newer version", where,
            quote_text(name.get<std::string>()));
}

template <typename T>
std::vector<T> from_list(const Json& names, const std::string& where) {
  return project(names, [&](const Json& name) { return from_name<T>(name, where); });
}

StatisticsSettings parse_settings(const Json& json, const std::string& where) {
  StatisticsSettings settings;
  settings.moments = settings.near_keys = settings.all_keys = false;
  for (const auto& group : json.at("groups")) {
    settings.moments = settings.moments || group == "A";
    settings.near_keys = settings.near_keys || group == "B";
    settings.all_keys = settings.all_keys || group == "C";
  }
  settings.kinds = from_list<VectorKind>(json.at("kinds"), where);
  settings.stages = from_list<VectorStage>(json.at("stages"), where);
  if (!json.at("layers").is_null())
    settings.layers = json.at("layers").get<std::vector<std::int64_t>>();
  json.at("first").get_to(settings.first);
  json.at("buckets").get_to(settings.buckets);
  json.at("bucket_size").get_to(settings.bucket_size);
  settings.bucket_covariance = from_list<VectorKind>(json.at("bucket_covariance"), where);
  json.at("window").get_to(settings.window);
  json.at("stream").at(0).get_to(settings.stream_first);
  json.at("stream").at(1).get_to(settings.stream_last);
  for (const auto& head : json.at("columns"))
    settings.columns.push_back({head.at(0).get<std::int64_t>(), head.at(1).get<std::int64_t>()});
  for (const auto& item : json.at("kl"))
    settings.kl.push_back(
        {from_name<Scheme>(item.at("scheme"), where), from_name<Scale>(item.at("scale"), where),
         item.at("group").get<std::int64_t>(), item.at("name").get<std::string>()});
  for (const auto& item : json.at("keep"))
    settings.keep.push_back({from_name<Rule>(item.at("rule"), where),
                             item.at("first").get<std::int64_t>(),
                             item.at("last").get<std::int64_t>(), item.at("share").get<double>(),
                             item.at("name").get<std::string>()});
  // statistics_settings_to_json() leaves out these keys when they have their default.
  settings.fp8_scales = json.value("fp8_scales", "");
  settings.q_filters = json.value("q_filters", "");
  settings.exact_rows = json.value("exact_rows", std::int64_t{0});
  settings.all_keys_rows = json.value("all_keys_rows", 1.0);
  settings.seed = json.value("seed", std::int64_t{0});
  json.at("retrieval").get_to(settings.retrieval);
  json.at("min_match").get_to(settings.min_match);
  return settings;
}

void write_state(const std::string& folder, const Statistics& s) {
  const Json state = {
      {"format", stats_layout::kFormatName},
      {"documents", s.lengths.size()},
      {"tokens", std::accumulate(s.lengths.begin(), s.lengths.end(), std::int64_t{0})},
      {"metadata", s.metadata},
      {"settings", statistics_settings_to_json(s.settings)},
      {"configuration", parse_json(s.configuration, "configuration")},
      {"files", to_json(list_files(folder))}};
  write_file(folder + "/" + stats_layout::kStateFile,
             state.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void check_files(const std::string& folder) {
  const auto file = folder + "/" + stats_layout::kStateFile;
  if (!path_exists(file))
    bad_input(
        "{}: there is no {}: no statistics, or such that are not finished; expected the "
        "folder of a finished `qkscope stats`",
        folder, stats_layout::kStateFile);
  const Json state = load_json(file);
  const auto files = state.is_object() ? parse_file_list(state, file) : std::nullopt;
  if (!files) bad_input("{}: has no list of files; it is damaged", file);
  constexpr char kAdvice[] = "make the statistics again";
  check_file_sizes(folder, *files, kAdvice);
  if (const auto sums = files->find(stats_layout::kSumsFile); sums != files->end())
    check_file_content(folder, sums->first, sums->second, kAdvice);
}

}  // namespace

template <typename T>
std::optional<T> enumerator_from_name(std::string_view name) {
  for (const auto& [value, known] : kNames<T>)
    if (name == known) return value;
  return {};
}
template std::optional<Scheme> enumerator_from_name(std::string_view name);
template std::optional<Scale> enumerator_from_name(std::string_view name);
template std::optional<VectorKind> enumerator_from_name(std::string_view name);
template std::optional<VectorStage> enumerator_from_name(std::string_view name);

Json statistics_settings_to_json(const StatisticsSettings& settings) {
  Json groups = Json::array();
  if (settings.moments) groups.push_back("A");
  if (settings.near_keys) groups.push_back("B");
  if (settings.all_keys) groups.push_back("C");
  Json columns = Json::array();
  for (const auto& head : settings.columns) columns.push_back({head.layer, head.head});
  Json kl = Json::array();
  for (const auto& replacement : settings.kl)
    kl.push_back({{"name", replacement.name},
                  {"scheme", name_of(replacement.scheme)},
                  {"scale", name_of(replacement.scale)},
                  {"group", replacement.group}});
  Json keep = Json::array();
  for (const auto& kept : settings.keep)
    keep.push_back({{"name", kept.name},
                    {"rule", name_of(kept.rule)},
                    {"first", kept.first},
                    {"last", kept.last},
                    {"share", kept.share}});
  Json json = {{"groups", std::move(groups)},
               {"kinds", project(settings.kinds, name_of<VectorKind>)},
               {"stages", project(settings.stages, name_of<VectorStage>)},
               {"layers", settings.layers ? Json(*settings.layers) : Json()},
               {"first", settings.first},
               {"buckets", settings.buckets},
               {"bucket_size", settings.bucket_size},
               {"bucket_covariance", project(settings.bucket_covariance, name_of<VectorKind>)},
               {"window", settings.window},
               {"stream", {settings.stream_first, settings.stream_last}},
               {"columns", std::move(columns)},
               {"kl", std::move(kl)},
               {"keep", std::move(keep)},
               {"retrieval", settings.retrieval},
               {"min_match", settings.min_match}};
  if (!settings.fp8_scales.empty()) json["fp8_scales"] = settings.fp8_scales;
  if (!settings.q_filters.empty()) json["q_filters"] = settings.q_filters;
  if (settings.exact_rows > 0) json["exact_rows"] = settings.exact_rows;
  if (settings.all_keys_rows < 1) {
    json["all_keys_rows"] = settings.all_keys_rows;
    json["seed"] = settings.seed;
  }
  return json;
}

StatisticsSettings statistics_settings_from_json(const Json& json, const std::string& where) {
  try {
    return parse_settings(json, where);
  } catch (const Json::exception& error) {
    bad_input("{}: settings of the statistics: {}; the file is damaged", where, error.what());
  }
}

void write_statistics(const std::string& folder, const Statistics& statistics,
                      DocumentSource& documents) {
  write_sums_file(folder + "/" + stats_layout::kSumsFile, statistics);
  write_statistics_tables(folder, statistics, documents);
  write_state(folder, statistics);
}

Statistics read_statistics(const std::string& folder) {
  return translate_exceptions([&] {
    check_files(folder);
    Statistics statistics = read_sums_file(folder + "/" + stats_layout::kSumsFile);
    statistics.retrieval = read_retrieval_trials(folder, statistics);
    return statistics;
  });
}

}  // namespace qkscope
