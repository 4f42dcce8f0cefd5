#include <algorithm>

#include "figures/report_data.h"
#include "io/folder.h"

namespace qkscope {

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
