#include "analysis/results/write_results.h"

#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>

#include <fmt/chrono.h>

#include "analysis/results/measures.h"
#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/thread_pool.h"
#include "base/core/translate_exceptions.h"
#include "base/io/durable_file.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "base/io/open_folder.h"
#include "base/io/output_file.h"
#include "capture/format/capture_source.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "qkscope/experimental/store.h"
#include "qkscope/version.h"

namespace qkscope {
namespace {

// What the jackknife says of a mean, where it says something.
void put_error(Json& entry, const AnalysisRun& run, const Measure& measure,
               const std::string& heads) {
  const auto* error = find_error(run, measure.quantity(), heads);
  if (error == nullptr || std::isnan(error->se)) return;
  entry["se"] = error->se;
  entry["low"] = error->low;
  entry["high"] = error->high;
}

// Mean (or median), standard deviation over heads (ddof 1) and number of heads of each measure in
// each group of layers, with the error over texts.
Json means(const AnalysisRun& run, const std::vector<Measure>& measures) {
  Json result = Json::object();
  for (const char* group : kHeadGroups) {
    Json of_group = Json::object();
    for (const auto& measure : measures) {
      const auto values = values_of(run, measure, group);
      if (values.empty()) continue;
      const double centre = measure.centre(values);
      Json entry = {{measure.median ? "median" : "mean", centre}, {"heads", values.size()}};
      if (!measure.median) {
        double spread = 0;
        for (const double value : values) spread += (value - centre) * (value - centre);
        entry["std"] = values.size() > 1
                           ? Json(std::sqrt(spread / static_cast<double>(values.size() - 1)))
                           : Json();
      }
      put_error(entry, run, measure, group);
      of_group[measure.name] = entry;
    }
    if (!of_group.empty()) result[group] = of_group;
  }
  return result;
}

// Deciles, quintiles and length bins of the profile: their means over heads.
Json profile_bin_means(const AnalysisRun& run) {
  struct Sum {
    double low = 0;
    double high = 0;
    double all = 0;  // heads
    double ap = 0;
    double heads = 0;  // that have a value
  };
  Json result = Json::object();
  for (const char* group : {"all", "rope", "nope", "unknown"}) {
    std::map<ProfileBinMean::Kind, std::map<int, Sum>> sums;
    for (const auto& head : run.heads) {
      if (!head.plasticity) continue;
      if (std::string(group) != "all" && to_string(head.rope) != group) continue;
      for (const auto& mean : head.plasticity->profile_bin_means) {
        Sum& sum = sums[mean.kind][mean.bin];
        sum.low += mean.low;
        sum.high += mean.high;
        sum.all += 1;
        if (std::isnan(mean.ap)) continue;
        sum.ap += mean.ap;
        sum.heads += 1;
      }
    }
    for (const auto& [kind, bins] : sums)
      for (const auto& [bin, sum] : bins)
        result[group][to_string(kind)].push_back(
            {{"bin", bin},
             {"low", sum.low / sum.all},
             {"high", sum.high / sum.all},
             {"mean", sum.heads > 0 ? Json(sum.ap / sum.heads) : Json()},
             {"heads", sum.heads}});
  }
  return result;
}

std::string fifths_name(const AnalyzeOptions& options) {
  using Fifths = PlasticityOptions::Fifths;
  return options.plasticity_options.fifths == Fifths::range ? "range" : "context";
}

// Over which bins the profile was taken, the same in all heads, and its means.
Json profile_summary(const AnalysisRun& run, const AnalyzeOptions& options) {
  Json profile = {{"fifths", fifths_name(options)}, {"means", profile_bin_means(run)}};
  std::map<bool, int> gaussian;
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    const auto& p = *head.plasticity;
    profile["bins"] = p.profile_bins > 0 ? Json(p.profile_bins) : Json("buckets");
    profile["context"] = p.profile_context;
    if (p.gaussian) ++gaussian[*p.gaussian];
  }
  // Heads whose Gaussian and model-free plasticity agree within their errors, and whose do not.
  if (!gaussian.empty()) profile["gaussian"] = {{"yes", gaussian[true]}, {"no", gaussian[false]}};
  return profile;
}

Json taxonomy_counts(const AnalysisRun& run, const ResultTables& results,
                     const TaxonomyOptions& options) {
  Json counts = Json::object();
  for (const auto& result : results.tables) {
    if (result.name != "taxonomy_counts") continue;
    const auto& columns = result.table.columns();
    for (std::size_t i = 0; i < static_cast<std::size_t>(result.table.rows()); ++i)
      counts[columns[1].texts[i]][columns[2].texts[i]] = {{"heads", columns[3].integers[i]},
                                                          {"fraction", columns[4].reals[i]}};
  }
  for (const auto& measure : class_measures(options))
    for (auto& [group, classes] : counts.items())
      if (classes.contains(measure.name)) put_error(classes[measure.name], run, measure, group);
  return counts;
}

Json head_counts(const AnalysisRun& run) {
  Json counts = {{"heads", run.heads.size()},
                 {"analysed", 0},
                 {"failed", 0},
                 {"rope", 0},
                 {"nope", 0},
                 {"unknown", 0}};
  Json failed = Json::array();
  for (const auto& head : run.heads) {
    counts[head.error.empty() ? "analysed" : "failed"] =
        counts[head.error.empty() ? "analysed" : "failed"].get<int>() + 1;
    if (!head.error.empty()) {
      failed.push_back(
          {{"layer", head.query.layer}, {"head", head.query.head}, {"error", head.error}});
      continue;
    }
    counts[to_string(head.rope)] = counts[to_string(head.rope)].get<int>() + 1;
  }
  counts["failures"] = failed;
  return counts;
}

// As the option is given.
Json profile_bins_name(int bins) {
  if (bins == PlasticityOptions::kBuckets) return "buckets";
  return bins > 0 ? Json(bins) : Json("auto");
}

// "2026-11-16T03:10:00Z"
std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

// What differs between two runs that give the same numbers.
Json timings(const AnalysisRun& run, double write_seconds) {
  return {{"finished", utc_now()},
          {"threads", thread_count()},
          {"total_seconds", run.seconds + write_seconds},
          {"analysis_seconds", run.seconds},
          {"write_seconds", write_seconds},
          {"thread_seconds",
           {{"read", run.times.read},
            {"moments", run.times.moments},
            {"pca", run.times.pca},
            {"rotation", run.times.rotation},
            {"plasticity", run.times.plasticity},
            {"errors", run.times.errors}}}};
}

const char* name_of(RotationOptions::Separation separation) {
  switch (separation) {
    case RotationOptions::Separation::mean:
      return "mean";
    case RotationOptions::Separation::eigen:
      return "eigen";
    case RotationOptions::Separation::eigen_then_project:
      break;
  }
  return "eigen-then-project";
}

Json heads_json(const std::vector<HeadId>& heads) {
  Json list = Json::array();
  for (const auto& head : heads) list.push_back({head.layer, head.head});
  return list;
}

}  // namespace

Json options_json(const AnalyzeOptions& options) {
  const auto& p = options.plasticity_options;
  const bool full = p.covariance == PlasticityOptions::Covariance::full;
  Json analyses = Json::array();
  if (options.pca) analyses.push_back("pca");
  if (options.rotation) analyses.push_back("rotation");
  if (options.plasticity) analyses.push_back("plasticity");
  Json json = {{"analyses", analyses},
               {"components", options.pca_options.components},
               {"separate_components", options.pca_options.separate_components},
               {"taxonomy_high", options.taxonomy.high},
               {"taxonomy_low", options.taxonomy.low},
               {"separation", name_of(options.rotation_options.separation)},
               {"pairs", options.rotation_options.pairs},
               {"active_angle_r", options.rotation_options.active_angle_r},
               {"max_omega", options.rotation_options.max_omega},
               {"null_draws", options.rotation_options.null_draws},
               {"query_model", to_string(p.profile_model)},
               {"covariance", full ? "full" : "diagonal"},
               {"free_keys", p.free_keys},
               {"max_pairs", p.max_pairs},
               {"p_alpha", p.p_alpha},
               {"heatmap_bins", p.heatmap_bins},
               {"profile_bins", profile_bins_name(p.profile_bins)},
               {"fifths", fifths_name(options)},
               {"length_bins", p.length_bins},
               {"layers", options.layers},
               {"heads", heads_json(options.heads)},
               {"errors", options.errors},
               {"max_tokens", options.max_tokens},
               {"scatter", options.scatter},
               {"planes_of", heads_json(options.planes_of)},
               {"seed", options.seed}};
  if (options.head_counts)
    json["head_counts"] = {options.head_counts->query_heads, options.head_counts->key_heads};
  if (options.pre_rope) json["stage"] = "pre";
  if (!options.keys.empty()) json["keys"] = short_name(options.keys);
  if (!options.model.empty()) json["model"] = short_name(options.model);
  if (!options.nope_layers.empty()) json["nope_layers"] = options.nope_layers;
  return json;
}

namespace {

// For whoever reads the summary or the report: paths of a machine lose their folders.
Json without_paths(Json json) {
  if (json.is_string() && json.get_ref<const std::string&>().starts_with('/'))
    return short_name(json.get<std::string>());
  if (json.is_structured())
    for (auto& inner : json) inner = without_paths(std::move(inner));
  return json;
}

// What the capture says of itself as a whole: model, dataset, sampling, as far as it does.
Json capture_state(const AnalysisRun& run) {
  if (run.state.empty()) return Json::object();
  return without_paths(parse_json(run.state, layout::kStateFile));
}

}  // namespace

Json summarise(const AnalysisRun& run, const ResultTables& results, const AnalyzeOptions& options) {
  Json summary = {{"model", run.label},
                  {"capture_hash", capture_hash(options.data_root)},
                  {"data_root", short_name(options.data_root)},
                  {"capture", run.capture},
                  {"capture_state", capture_state(run)},
                  {"versions", {{"qkscope", version_string()}}},
                  {"counts", head_counts(run)},
                  {"options", options_json(options)},
                  {"texts", run.texts},
                  {"warnings", run.warnings},
                  {"undefined", results.undefined}};
  if (options.pca) summary["pca"] = means(run, pca_measures());
  if (options.pca) summary["taxonomy"] = taxonomy_counts(run, results, options.taxonomy);
  if (options.rotation) summary["rotation"] = means(run, rotation_measures());
  if (options.plasticity) summary["plasticity"] = means(run, plasticity_measures());
  if (options.plasticity) summary["profile"] = profile_summary(run, options);
  return summary;
}

void remove_summary(const std::string& folder) {
  if (!is_folder(folder)) return;
  OpenFolder(folder).remove_file("summary.json");
  sync_folder(folder);
}

void write_results(const std::string& path_or_address, const AnalysisRun& run,
                   const AnalyzeOptions& options) {
  translate_exceptions([&] {
    const auto begun = std::chrono::steady_clock::now();
    StoredOutput output(path_or_address, "results");
    const auto& folder = output.folder();
    make_folders(folder);
    remove_summary(folder);
    const ResultTables results = result_tables(run, options);
    // The scatter, by far the largest, comes last in the list: it is begun first.
    const auto files = 2 * std::ssize(results.tables);
    parallel_for(files, [&](std::int64_t i) {
      const auto& result = results.tables[static_cast<std::size_t>((files - 1 - i) / 2)];
      const std::string path = folder + "/" + result.name;
      if (i % 2 == 0) {
        if (result.csv) result.table.write_csv(path + ".csv");
      } else {
        result.table.write_parquet(path + ".parquet");
      }
    });
    const Json summary = summarise(run, results, options);
    const std::chrono::duration<double> writing = std::chrono::steady_clock::now() - begun;
    write_file(folder + "/timings.json", timings(run, writing.count()).dump(2) + "\n");
    write_file(folder + "/summary.json",
               summary.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    output.publish(options.quiet);
  });
}

void report_failed_heads(const AnalysisRun& run, const std::string& folder) {
  translate_exceptions([&] {
    std::size_t failed = 0;
    ErrorKind kind = ErrorKind::bad_input;
    for (const auto& head : run.heads) {
      if (head.error.empty()) continue;
      ++failed;
      if (head.error_kind == ErrorKind::failure) kind = ErrorKind::failure;
      log::error("layer {} head {}: {}", head.query.layer, head.query.head, head.error);
    }
    if (failed == 0) return;
    throw Error(kind,
                fmt::format("{} of {} heads could not be analysed; {}", failed, run.heads.size(),
                            failed < run.heads.size() ? "the results of the others are in " + folder
                                                      : "the tables in " + folder + " are empty"));
  });
}

}  // namespace qkscope
