#include "capture/stats_format/stats_file.h"

#include <array>
#include <numeric>
#include <utility>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/file_list.h"
#include "base/io/folder.h"
#include "base/io/output_file.h"
#include "capture/stats_format/stats_tables.h"

namespace qkscope {
namespace {

template <typename T, std::size_t N>
using NameTable = std::array<std::pair<T, const char*>, N>;

using Scheme = KeyReplacement::Scheme;
using Scale = KeyReplacement::Scale;
using Rule = KeptKeys::Rule;

constexpr NameTable<Scheme, 3> kSchemes = {
    {{Scheme::fp8, "fp8"}, {Scheme::int8, "int8"}, {Scheme::int4, "int4"}}};
constexpr NameTable<Scale, 5> kScales = {{{Scale::channel, "channel"},
                                          {Scale::token, "token"},
                                          {Scale::group, "group"},
                                          {Scale::head, "head"},
                                          {Scale::exported, "exported"}}};
constexpr NameTable<Rule, 3> kRules = {{{Rule::ends, "ends"},
                                        {Rule::short_keys, "short_keys"},
                                        {Rule::filtered_keys, "filtered_keys"}}};
constexpr NameTable<VectorKind, 3> kKinds = {
    {{VectorKind::query, "q"}, {VectorKind::key, "k"}, {VectorKind::value, "v"}}};
constexpr NameTable<VectorStage, 2> kStages = {
    {{VectorStage::pre, "pre"}, {VectorStage::post, "post"}}};

template <typename T, std::size_t N>
std::string name_of(const NameTable<T, N>& names, T value) {
  for (const auto& [known, name] : names)
    if (known == value) return name;
  return "";
}

template <typename T, std::size_t N>
T from_name(const NameTable<T, N>& names, const std::string& name, const std::string& where) {
  for (const auto& [known, text] : names)
    if (name == text) return known;
  bad_input("{}: settings: {} is not known; the file is damaged or of a newer version", where,
            quote_text(name));
}

template <typename T, std::size_t N>
Json name_list(const NameTable<T, N>& names, const std::vector<T>& values) {
  Json list = Json::array();
  for (const auto value : values) list.push_back(name_of(names, value));
  return list;
}

template <typename T, std::size_t N>
std::vector<T> from_list(const NameTable<T, N>& names, const Json& list, const std::string& where) {
  std::vector<T> values;
  for (const auto& item : list) values.push_back(from_name(names, item.get<std::string>(), where));
  return values;
}

StatisticsSettings parse_settings(const Json& json, const std::string& where) {
  StatisticsSettings settings;
  settings.moments = settings.near_keys = settings.all_keys = false;
  for (const auto& group : json.at("groups")) {
    settings.moments = settings.moments || group == "A";
    settings.near_keys = settings.near_keys || group == "B";
    settings.all_keys = settings.all_keys || group == "C";
  }
  settings.kinds = from_list(kKinds, json.at("kinds"), where);
  settings.stages = from_list(kStages, json.at("stages"), where);
  if (!json.at("layers").is_null())
    settings.layers = json.at("layers").get<std::vector<std::int64_t>>();
  json.at("first").get_to(settings.first);
  json.at("buckets").get_to(settings.buckets);
  json.at("bucket_size").get_to(settings.bucket_size);
  settings.bucket_covariance = from_list(kKinds, json.at("bucket_covariance"), where);
  json.at("window").get_to(settings.window);
  json.at("stream").at(0).get_to(settings.stream_first);
  json.at("stream").at(1).get_to(settings.stream_last);
  for (const auto& head : json.at("columns"))
    settings.columns.push_back({head.at(0).get<std::int64_t>(), head.at(1).get<std::int64_t>()});
  for (const auto& item : json.at("kl"))
    settings.kl.push_back({from_name(kSchemes, item.at("scheme").get<std::string>(), where),
                           from_name(kScales, item.at("scale").get<std::string>(), where),
                           item.at("group").get<std::int64_t>(),
                           item.at("name").get<std::string>()});
  for (const auto& item : json.at("keep"))
    settings.keep.push_back({from_name(kRules, item.at("rule").get<std::string>(), where),
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
                  {"scheme", name_of(kSchemes, replacement.scheme)},
                  {"scale", name_of(kScales, replacement.scale)},
                  {"group", replacement.group}});
  Json keep = Json::array();
  for (const auto& kept : settings.keep)
    keep.push_back({{"name", kept.name},
                    {"rule", name_of(kRules, kept.rule)},
                    {"first", kept.first},
                    {"last", kept.last},
                    {"share", kept.share}});
  Json json = {{"groups", std::move(groups)},
               {"kinds", name_list(kKinds, settings.kinds)},
               {"stages", name_list(kStages, settings.stages)},
               {"layers", settings.layers ? Json(*settings.layers) : Json()},
               {"first", settings.first},
               {"buckets", settings.buckets},
               {"bucket_size", settings.bucket_size},
               {"bucket_covariance", name_list(kKinds, settings.bucket_covariance)},
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
