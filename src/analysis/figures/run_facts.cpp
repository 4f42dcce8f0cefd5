#include "analysis/figures/run_facts.h"

#include <algorithm>

#include "analysis/figures/run_names.h"
#include "base/io/folder.h"

namespace qkscope {
namespace {

// Text under a chain of keys, empty where there is none.
std::string text_at(const Json& json, const std::vector<const char*>& keys) {
  const Json* at = &json;
  for (const char* key : keys) {
    if (!at->is_object() || !at->contains(key)) return "";
    at = &(*at)[key];
  }
  return at->is_string() ? at->get<std::string>() : "";
}

// The sweep's own word, else the name of the model that was captured.
std::string family_from(const Run& run) {
  if (auto family = text_at(run.facts, {"family"}); !family.empty()) return family;
  for (const auto& keys : std::vector<std::vector<const char*>>{{"summary", "capture", "model"},
                                                                {"config", "model", "name"}})
    if (const auto model = text_at(run.facts, keys); !model.empty()) return family_of(model);
  return family_of(run.label);
}

void read_bounds(Run& run) {
  const Json none = Json::object();
  if (!run.facts.contains("summary") || !run.facts["summary"].is_object()) return;
  const Json options = run.facts["summary"].value("options", none);
  if (!options.is_object()) return;
  const auto number = [&](const char* key, double& bound) {
    if (const Json found = options.value(key, Json()); found.is_number()) bound = found;
  };
  number("taxonomy_high", run.high);
  number("taxonomy_low", run.low);
}

// Its entry in runs.json, where there is one, and what lies beside its results.
Json facts_of(const Run& run, const Json& entries, const std::string& folder) {
  Json facts = {{"label", run.label}, {"phase", run.phase}, {"order", run.order}};
  std::string own = folder;
  for (const auto& entry : entries) {
    if (text_at(entry, {"label"}) != run.label) continue;
    facts.update(entry);
    if (const auto results = text_at(entry, {"results"}); !results.empty()) own += "/" + results;
  }
  for (const std::string file : {"summary", "timings"})
    if (const auto path = own + "/" + file + ".json"; path_exists(path))
      facts[file] = load_json(path);
  return facts;
}

}  // namespace

RunFacts read_run_facts(const std::string& folder, std::vector<Run>& runs) {
  RunFacts facts;
  Json entries = Json::array();
  if (const std::string list = folder + "/runs.json"; path_exists(list)) {
    const Json sweep = load_json(list);
    facts.name = text_at(sweep, {"name"});
    if (sweep.is_object() && sweep.value("runs", Json()).is_array()) entries = sweep["runs"];
  }
  for (auto& run : runs) {
    run.facts = facts_of(run, entries, folder);
    run.title = shown_label(run.label);
    run.family = family_from(run);
    read_bounds(run);
  }
  for (const auto& entry : entries)
    if (entry.is_object() && std::none_of(runs.begin(), runs.end(), [&](const Run& run) {
          return run.label == text_at(entry, {"label"});
        }))
      facts.others.push_back(entry);
  return facts;
}

}  // namespace qkscope
