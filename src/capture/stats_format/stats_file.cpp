#include "capture/stats_format/stats_file.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/file_list.h"
#include "base/io/folder.h"

namespace qkscope {
namespace {

using Scheme = KeyReplacement::Scheme;
using Scale = KeyReplacement::Scale;
using Rule = KeptKeys::Rule;

// Names of the enumerators of T in files and configurations, in the order of their declaration.
template <typename T>
constexpr std::array<const char*, 0> kNames = {};
template <>
constexpr std::array<const char*, 3> kNames<Scheme> = {"fp8", "int8", "int4"};
template <>
constexpr std::array<const char*, 5> kNames<Scale> = {"channel", "token", "group", "head",
                                                      "exported"};
template <>
constexpr std::array<const char*, 3> kNames<Rule> = {"ends", "short_keys", "filtered_keys"};
template <>
constexpr std::array<const char*, 3> kNames<VectorKind> = {"q", "k", "v"};
template <>
constexpr std::array<const char*, 2> kNames<VectorStage> = {"pre", "post"};

// Thrown if a name in JSON matches no enumerator.
struct UnknownNameError {
  std::string name;
};

}  // namespace

// ---- Conversions that nlohmann::json finds by argument-dependent lookup

template <typename T>
requires(!kNames<T>.empty()) void to_json(Json& json, T value) {
  json = kNames<T>[static_cast<std::size_t>(value)];
}
template <typename T>
requires(!kNames<T>.empty()) void from_json(const Json& json, T& value) {
  const auto found = enum_from_name<T>(json.get<std::string>());
  if (!found) throw UnknownNameError{json.get<std::string>()};
  value = *found;
}
inline void to_json(Json& json, const LayerHead& head) {
  json = {head.layer, head.head};
}
inline void from_json(const Json& json, LayerHead& head) {
  json.at(0).get_to(head.layer);
  json.at(1).get_to(head.head);
}
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(KeyReplacement, name, scheme, scale, group)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(KeptKeys, name, rule, first, last, share)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StatisticsSettings, kinds, stages, first, buckets, bucket_size,
                                   bucket_covariance, window, columns, kl, keep, retrieval,
                                   min_match)

namespace {

void write_state_file(const std::string& folder, const Statistics& s) {
  const Json state = {
      {"format", stats_layout::kFormatName},
      {"documents", s.lengths.size()},
      {"tokens", std::accumulate(s.lengths.begin(), s.lengths.end(), std::int64_t{0})},
      {"metadata", s.metadata},
      {"settings", statistics_settings_to_json(s.settings)},
      {"configuration", parse_json(s.configuration, "configuration")},
      {"files", to_json(make_file_list(folder))}};
  write_json_file(folder + "/" + stats_layout::kStateFile, state);
}

}  // namespace

template <typename T>
std::optional<T> enum_from_name(std::string_view name) {
  const auto found = std::ranges::find(kNames<T>, name);
  if (found == kNames<T>.end()) return {};
  return static_cast<T>(found - kNames<T>.begin());
}
template std::optional<Scheme> enum_from_name(std::string_view name);
template std::optional<Scale> enum_from_name(std::string_view name);
template std::optional<VectorKind> enum_from_name(std::string_view name);
template std::optional<VectorStage> enum_from_name(std::string_view name);

Json statistics_settings_to_json(const StatisticsSettings& settings) {
  Json json = settings;
  json["groups"] = Json::array();
  if (settings.moments) json["groups"].push_back("A");
  if (settings.near_keys) json["groups"].push_back("B");
  if (settings.all_keys) json["groups"].push_back("C");
  json["layers"] = settings.layers ? Json(*settings.layers) : Json();
  json["stream"] = {settings.stream_first, settings.stream_last};
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
    auto settings = json.get<StatisticsSettings>();
    settings.moments = settings.near_keys = settings.all_keys = false;
    for (const auto& group : json.at("groups")) {
      settings.moments = settings.moments || group == "A";
      settings.near_keys = settings.near_keys || group == "B";
      settings.all_keys = settings.all_keys || group == "C";
    }
    if (!json.at("layers").is_null())
      settings.layers = json.at("layers").get<std::vector<std::int64_t>>();
    json.at("stream").at(0).get_to(settings.stream_first);
    json.at("stream").at(1).get_to(settings.stream_last);
    // statistics_settings_to_json() omits these keys when they have their default values.
    settings.fp8_scales = json.value("fp8_scales", "");
    settings.q_filters = json.value("q_filters", "");
    settings.exact_rows = json.value("exact_rows", std::int64_t{0});
    settings.all_keys_rows = json.value("all_keys_rows", 1.0);
    settings.seed = json.value("seed", std::int64_t{0});
    return settings;
  } catch (const UnknownNameError& unknown) {
    reject("{}: settings: {} is not known; the file is damaged or of a newer version", where,
           quote_text(unknown.name));
  } catch (const Json::exception& error) {
    reject("{}: settings of the statistics: {}; the file is damaged", where, error.what());
  }
}

void write_statistics(const std::string& folder, const Statistics& statistics,
                      DocumentSource& documents) {
  write_accumulated_sums(folder + "/" + stats_layout::kSumsFile, statistics);
  write_statistics_tables(folder, statistics, documents);
  write_state_file(folder, statistics);
}

Statistics read_statistics(const std::string& folder) {
  return translate_exceptions([&] {
    const auto file = folder + "/" + stats_layout::kStateFile;
    if (!path_exists(file))
      reject(
          "{}: there is no {}: no statistics, or such that are not finished; expected the "
          "folder of a finished `qkscope stats`",
          folder, stats_layout::kStateFile);
    const Json state = load_json(file);
    const auto files = state.is_object() ? parse_file_list(state, file) : std::nullopt;
    if (!files) reject("{}: has no list of files; it is damaged", file);
    constexpr char kAdvice[] = "make the statistics again";
    check_file_sizes(folder, *files, kAdvice);
    if (const auto sums = files->find(stats_layout::kSumsFile); sums != files->end())
      check_file_content(folder, sums->first, sums->second, kAdvice);
    Statistics statistics = read_accumulated_sums(folder + "/" + stats_layout::kSumsFile);
    statistics.retrieval = read_retrieval_trials(folder, statistics);
    return statistics;
  });
}

}  // namespace qkscope
