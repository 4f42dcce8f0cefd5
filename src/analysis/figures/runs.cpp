#include <algorithm>

#include <fmt/format.h>

#include "analysis/figures/results.h"
#include "base/core/text.h"
#include "base/io/folder.h"

namespace qkscope {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string_view last_path_component(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

// "org/name" names a repository on the Hub, not a path.
bool looks_like_a_path(std::string_view text) {
  for (const char* start : {"/", "./", "../", "~/"})
    if (text.starts_with(start)) return true;
  const bool plain = std::ranges::all_of(text, [](char c) {
    return is_letter(c) || is_digit(c) || std::string_view("._+-/").find(c) != std::string::npos;
  });
  return plain && std::count(text.begin(), text.end(), '/') > 1;
}

// Returns the value at a JSON pointer, or null if there is none.
Json value_at_json_pointer(const Json& json, const char* pointer) {
  const Json::json_pointer path(pointer);
  return json.contains(path) ? json[path] : Json();
}

// Returns the string at a JSON pointer, or "" if there is none.
std::string string_at_json_pointer(const Json& json, const char* pointer) {
  const Json value = value_at_json_pointer(json, pointer);
  return value.is_string() ? value.get<std::string>() : "";
}

// The family given in the sweep file takes precedence over the family derived from the model name.
std::string family_from(const ResultRun& run) {
  if (auto family = string_at_json_pointer(run.facts, "/family"); !family.empty()) return family;
  for (const char* pointer : {"/summary/capture/model", "/config/model/name"})
    if (const auto model = string_at_json_pointer(run.facts, pointer); !model.empty())
      return model_family(model);
  return model_family(run.label);
}

// Merges the run's entry in runs.json with the summary.json and timings.json of its results.
Json collect_run_metadata(const ResultRun& run, const Json& entries, const std::string& folder) {
  Json facts = {{"label", run.label}, {"phase", run.phase}, {"order", run.order}};
  std::string own = folder;
  for (const auto& entry : entries) {
    if (string_at_json_pointer(entry, "/label") != run.label) continue;
    facts.update(entry);
    if (const auto results = string_at_json_pointer(entry, "/results"); !results.empty())
      own += "/" + results;
  }
  for (const std::string file : {"summary", "timings"})
    if (const auto path = fmt::format("{}/{}.json", own, file); path_exists(path))
      facts[file] = load_json(path);
  return facts;
}

}  // namespace

SweepMetadata read_run_metadata(const std::string& folder, std::vector<ResultRun>& runs) {
  SweepMetadata metadata;
  Json entries = Json::array();
  if (const std::string list = folder + "/runs.json"; path_exists(list)) {
    const Json sweep = load_json(list);
    metadata.name = string_at_json_pointer(sweep, "/name");
    if (const Json runs_entry = value_at_json_pointer(sweep, "/runs"); runs_entry.is_array())
      entries = runs_entry;
  }
  for (auto& run : runs) {
    run.facts = collect_run_metadata(run, entries, folder);
    run.title = display_label(run.label);
    run.family = family_from(run);
    const auto read_bound = [&](const char* pointer, double& bound) {
      if (const Json found = value_at_json_pointer(run.facts, pointer); found.is_number())
        bound = found;
    };
    read_bound("/summary/options/taxonomy_high", run.high);
    read_bound("/summary/options/taxonomy_low", run.low);
  }
  for (const auto& entry : entries)
    if (entry.is_object() && std::ranges::none_of(runs, [&](const ResultRun& run) {
          return run.label == string_at_json_pointer(entry, "/label");
        }))
      metadata.runs_without_rows.push_back(entry);
  return metadata;
}

std::string display_label(const std::string& label) {
  if (!looks_like_a_path(label)) return label;
  constexpr std::string_view kCacheEntry = "/models--";
  if (const auto at = label.rfind(kCacheEntry); at != std::string::npos) {
    const auto begin = at + kCacheEntry.size();
    std::string name = label.substr(begin, label.find('/', begin) - begin);
    if (const auto dashes = name.find("--"); dashes != std::string::npos)
      name.replace(dashes, 2, "/");
    return name;
  }
  const auto last = last_path_component(label);
  return last.empty() ? label : std::string(last);
}

std::string model_family(std::string_view model) {
  const std::string name = ascii_lower(last_path_component(display_label(std::string(model))));
  std::size_t at = 0;
  while (at < name.size() && is_letter(name[at])) ++at;
  constexpr std::size_t kFewestLetters = 3;
  if (at < kFewestLetters) return "";
  std::string family = name.substr(0, at);
  if (at < name.size() && (name[at] == '-' || name[at] == '_')) ++at;
  std::size_t end = at;
  while (end < name.size() && (is_digit(name[end]) || name[end] == '.')) ++end;
  const std::string version = name.substr(at, end - at);
  const bool small = std::min(version.find('.'), version.size()) <= 2;
  if (small && (end == name.size() || !is_letter(name[end]))) family += version;
  return family;
}

bool is_same_model(std::string_view x, std::string_view y) {
  const auto key = [](std::string_view name) {
    std::string text = ascii_lower(last_path_component(name));
    std::erase_if(text, [](char c) { return c == '-' || c == '_'; });
    return text;
  };
  return key(x) == key(y) && !key(x).empty();
}

}  // namespace qkscope
