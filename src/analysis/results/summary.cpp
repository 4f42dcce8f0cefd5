#include <cmath>
#include <map>

#include "analysis/results/measures.h"
#include "analysis/results/write_results.h"
#include "capture/format/capture_source.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "qkscope/version.h"

namespace qkscope {
namespace {

// Adds the jackknife error of a mean and its confidence interval, where defined.
void put_error(Json& entry, const AnalysisRun& run, const Measure& measure,
               const std::string& heads) {
  const auto* error = find_error(run, measure.quantity(), heads);
  if (error == nullptr || std::isnan(error->se)) return;
  entry["se"] = error->se;
  entry["low"] = error->low;
  entry["high"] = error->high;
}

// Mean (or median), standard deviation over heads (ddof 1), number of heads and jackknife error of
// each measure, for each group of heads.
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

// Means over heads of the profile's deciles, quintiles and length bins. Groups that mix full and
// sliding attention are left out.
Json profile_bin_means(const AnalysisRun& run) {
  struct Sum {
    double low = 0;
    double high = 0;
    double all = 0;  // heads
    double ap = 0;
    double heads = 0;  // heads with a value
  };
  Json result = Json::object();
  for (const char* group : kHeadGroups) {
    if (!has_one_attention(run, group)) continue;
    std::map<ProfileBinMean::Kind, std::map<int, Sum>> sums;
    for (const auto& head : run.heads) {
      if (!head.plasticity || !in_group(head, group)) continue;
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

// Bins of the profile, the same in all heads, and means over heads.
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
  // Heads whose Gaussian and model-free plasticity agree within their errors, and heads where they
  // do not.
  if (!gaussian.empty()) profile["gaussian"] = {{"yes", gaussian[true]}, {"no", gaussian[false]}};
  return profile;
}

// Heads and fraction of each class in each group of heads, with the jackknife error.
Json class_counts(const AnalysisRun& run, ClassBy by, const TaxonomyOptions& options) {
  Json counts = Json::object();
  for (const char* group : kHeadGroups)
    for (const auto& measure : class_measures(by, options)) {
      const auto count = count_class(run, measure, group);
      if (count.of == 0) continue;
      Json& entry = counts[group][measure.name];
      entry = {{"heads", count.heads}, {"fraction", count.fraction()}};
      put_error(entry, run, measure, group);
    }
  return counts;
}

Json head_counts(const AnalysisRun& run) {
  std::map<std::string, int> counts = {
      {"heads", static_cast<int>(run.heads.size())}, {"analysed", 0}, {"failed", 0}};
  for (const char* group : kHeadGroups)
    if (std::string(group) != "all") counts[group] = 0;
  Json failed = Json::array();
  for (const auto& head : run.heads) {
    if (!head.error.empty()) {
      ++counts["failed"];
      failed.push_back(
          {{"layer", head.query.layer}, {"head", head.query.head}, {"error", head.error}});
      continue;
    }
    ++counts["analysed"];
    ++counts[to_string(head.rope)];
    ++counts[head.window ? "sliding" : "full"];
  }
  Json json = counts;
  json["failures"] = failed;
  return json;
}

// The value of --profile-bins.
Json profile_bins_name(int bins) {
  if (bins == PlasticityOptions::kBuckets) return "buckets";
  return bins > 0 ? Json(bins) : Json("auto");
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

const char* name_of(AttentionKind attention) {
  return attention == AttentionKind::any    ? "any"
         : attention == AttentionKind::full ? "full"
                                            : "sliding";
}

// Shortens paths of this machine to their last folder: summaries are shared.
Json without_paths(Json json) {
  if (json.is_string() && json.get_ref<const std::string&>().starts_with('/'))
    return short_name(json.get<std::string>());
  if (json.is_structured())
    for (auto& inner : json) inner = without_paths(std::move(inner));
  return json;
}

// Content of _saver_state.json: model, dataset, sampling.
Json capture_state(const AnalysisRun& run) {
  if (run.state.empty()) return Json::object();
  return without_paths(parse_json(run.state, layout::kStateFile));
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
               {"attention", name_of(options.attention)},
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

Json summarise(const AnalysisRun& run, const UndefinedCounts& undefined,
               const AnalyzeOptions& options) {
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
                  {"notes", run.notes},
                  {"undefined", undefined}};
  if (options.pca) summary["pca"] = means(run, pca_measures());
  if (options.pca)
    summary["taxonomy"] = class_counts(run, ClassBy::first_component, options.taxonomy);
  if (options.pca)
    summary["taxonomy_axis"] = class_counts(run, ClassBy::drift_axis, options.taxonomy);
  if (options.rotation) summary["rotation"] = means(run, rotation_measures());
  if (options.plasticity) summary["plasticity"] = means(run, plasticity_measures());
  if (options.plasticity) summary["profile"] = profile_summary(run, options);
  return summary;
}

}  // namespace qkscope
