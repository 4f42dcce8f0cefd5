// Writes summary.json of an analysis, and warnings about its results.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <variant>

#include <fmt/format.h>

#include "analysis/results/head_results.h"
#include "analysis/results/results_folder.h"
#include "base/core/log.h"
#include "capture/format/capture_source.h"
#include "capture/format/layout.h"
#include "capture/format/metadata.h"
#include "qkscope/experimental/options.h"
#include "qkscope/version.h"

namespace qkscope {

static void to_json(Json& json, const HeadId& head) {
  json = {head.layer, head.head};
}

namespace {

// Adds the jackknife error of a mean and its confidence interval, if defined.
void add_jackknife_error(Json& entry, const AnalysisRun& run, const HeadMeasure& measure,
                         const std::string& heads) {
  const auto* error = find_error_of_mean(run, measure.quantity_name(), heads);
  if (error == nullptr || std::isnan(error->se)) return;
  entry["se"] = error->se;
  entry["low"] = error->low;
  entry["high"] = error->high;
}

// Returns mean (or median), standard deviation over heads (ddof 1), number of heads and jackknife
// error of each measure, for each group of heads.
Json measures_json(const AnalysisRun& run, const std::vector<HeadMeasure>& measures) {
  Json result = Json::object();
  for (const char* group : kHeadGroups) {
    Json of_group = Json::object();
    for (const auto& measure : measures) {
      const auto values = values_of_measure(run, measure, group);
      if (values.empty()) continue;
      const double centre = measure.central_value(values);
      Json entry = {{measure.median ? "median" : "mean", centre}, {"heads", values.size()}};
      if (!measure.median) {
        double spread = 0;
        for (const double value : values) spread += (value - centre) * (value - centre);
        entry["std"] = values.size() > 1
                           ? Json(std::sqrt(spread / static_cast<double>(values.size() - 1)))
                           : Json();
      }
      add_jackknife_error(entry, run, measure, group);
      of_group[measure.name] = entry;
    }
    if (!of_group.empty()) result[group] = of_group;
  }
  return result;
}

// Returns false if the group has heads of both full-attention and sliding-window layers: their
// profiles cover different keys and cannot be averaged.
bool has_single_attention_kind(const AnalysisRun& run, const std::string& group) {
  std::set<bool> sliding;
  for (const auto& head : run.heads)
    if (head.error.empty() && is_in_head_group(head, group))
      sliding.insert(head.window.has_value());
  return sliding.size() < 2;
}

// Returns plasticity by decile, quintile and length bin of the context, averaged over heads.
Json profile_bins_json(const AnalysisRun& run) {
  struct BinSum {
    double low = 0;
    double high = 0;
    double all = 0;  // number of heads
    double ap = 0;
    double heads = 0;  // number of heads with a value
  };
  Json result = Json::object();
  for (const char* group : kHeadGroups) {
    if (!has_single_attention_kind(run, group)) continue;
    std::map<ProfileBinMean::Kind, std::map<int, BinSum>> sums;
    for (const auto& head : run.heads) {
      if (!head.plasticity || !is_in_head_group(head, group)) continue;
      for (const auto& mean : head.plasticity->profile_bin_means) {
        BinSum& sum = sums[mean.kind][mean.bin];
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

// Returns the section "profile" of summary.json: shared position bins and mean plasticity in them.
Json profile_json(const AnalysisRun& run, const AnalyzeOptions& options) {
  const bool range = options.plasticity_options.fifths == PlasticityOptions::Fifths::range;
  Json profile = {{"fifths", range ? "range" : "context"}, {"means", profile_bins_json(run)}};
  std::map<bool, int> gaussian;
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    const auto& p = *head.plasticity;
    profile["bins"] = p.profile_bins > 0 ? Json(p.profile_bins) : Json("buckets");
    profile["context"] = p.profile_context;
    if (p.gaussian) ++gaussian[*p.gaussian];
  }
  // Count the heads whose Gaussian and model-free plasticity agree within their errors, or differ.
  if (!gaussian.empty()) profile["gaussian"] = {{"yes", gaussian[true]}, {"no", gaussian[false]}};
  return profile;
}

// Counts the heads of each class in each group of heads: number, fraction and jackknife error.
Json class_counts_json(const AnalysisRun& run, HeadClassCriterion by,
                       const TaxonomyOptions& options) {
  Json counts = Json::object();
  for (const char* group : kHeadGroups)
    for (const auto& measure : class_membership_measures(by, options)) {
      const auto count = count_heads_of_class(run, measure, group);
      if (count.of == 0) continue;
      Json& entry = counts[group][measure.name];
      entry = {{"heads", count.heads}, {"fraction", count.fraction()}};
      add_jackknife_error(entry, run, measure, group);
    }
  return counts;
}

Json head_counts_json(const AnalysisRun& run) {
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

std::string option_json_key(const AnalysisOption& option) {
  static const std::map<std::string_view, std::string> kOtherNames = {
      {"separate_pca", "separate_components"},
      {"high", "taxonomy_high"},
      {"low", "taxonomy_low"},
      {"active", "active_angle_r"}};
  const auto found = kOtherNames.find(option.name);
  return found == kOtherNames.end() ? std::string(option.name) : found->second;
}

// Shortens absolute paths to their last component, because users share summaries.
Json shorten_paths_in_json(Json json) {
  if (json.is_string() && json.get_ref<const std::string&>().starts_with('/'))
    return id_or_base_name(json.get<std::string>());
  if (json.is_structured())
    for (auto& inner : json) inner = shorten_paths_in_json(std::move(inner));
  return json;
}

constexpr int kRowsPerDimension = 10;
constexpr double kChance = 0.05;

bool has_few_rows_per_dimension(const HeadReport& head) {
  return head.n_q + head.n_k < std::int64_t{kRowsPerDimension} * head.dim;
}

bool is_drift_within_chance(const HeadReport& head) {
  return head.rotation && head.rotation->null.position_r_p > kChance;
}

std::vector<std::string> make_summary_warnings(const AnalysisRun& run) {
  std::int64_t analysed = 0;
  std::int64_t within_chance = 0;
  std::vector<std::int64_t> few_rows;  // numbers of rows of the heads with few rows
  int dim = 0;                         // largest dimension of these heads
  double by_chance = 0;                // the largest position_r_null of these heads
  for (const auto& head : run.heads) {
    if (!head.error.empty()) continue;
    ++analysed;
    if (has_few_rows_per_dimension(head)) {
      few_rows.push_back(head.n_q + head.n_k);
      dim = std::max(dim, head.dim);
      if (head.rotation && head.rotation->null.position_r > by_chance)
        by_chance = head.rotation->null.position_r;
    } else if (is_drift_within_chance(head)) {
      ++within_chance;
    }
  }
  std::vector<std::string> warnings;
  if (!few_rows.empty()) {
    const auto [least, most] = std::ranges::minmax(few_rows);
    const auto rows =
        least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
    const auto reach =
        by_chance > 0
            ? fmt::format("; correlations along a reach {:.2f} by chance, see position_r_null",
                          by_chance)
            : std::string();
    warnings.push_back(fmt::format(
        "in {} of {} heads rows are few: {} queries and keys in {} dimensions, fewer than {} per "
        "dimension{}. Capture more texts or positions",
        few_rows.size(), analysed, rows, dim, kRowsPerDimension, reach));
  }
  if (within_chance > 0)
    warnings.push_back(fmt::format(
        "in {} of {} heads, though rows are enough, the correlation with position along a is no "
        "larger than shuffled "
        "positions give (position_r_p above {}): a and what is measured along it mean nothing "
        "there",
        within_chance, analysed, kChance));
  return warnings;
}

std::vector<std::string> make_summary_notes(const AnalysisRun& run,
                                            const TaxonomyOptions& options) {
  std::map<int, std::int64_t> later;  // heads by component, without PC0
  std::int64_t positional = 0;
  std::int64_t on_later = 0;
  for (const auto& head : run.heads) {
    const int pc = head.pca ? position_component(*head.pca) : -1;
    if (pc < 0) continue;
    const auto& component = head.pca->components[static_cast<std::size_t>(pc)];
    if (std::min(std::fabs(component.q.r), std::fabs(component.k.r)) <= options.high) continue;
    ++positional;
    if (pc == 0) continue;
    ++later[pc];
    ++on_later;
  }
  if (2 * on_later <= positional) return {};
  const auto most = std::ranges::max_element(later, {}, [](const auto& pc) { return pc.second; });
  return {fmt::format(
      "{} of {} heads whose queries and keys both follow position on one component (|r| above {}) "
      "do so on another one than PC0, most often PC{} ({} heads): class looks at PC0 alone; see "
      "class_axis and pc_position in taxonomy.csv",
      on_later, positional, options.high, most->first, most->second)};
}

}  // namespace

bool is_unreliable(const HeadReport& head) {
  return has_few_rows_per_dimension(head) || is_drift_within_chance(head);
}

void add_warnings_and_notes(AnalysisRun& run, const AnalyzeOptions& options) {
  run.warnings = make_summary_warnings(run);
  for (const auto& warning : run.warnings) log::warn("{}: {}", run.label, warning);
  run.notes = make_summary_notes(run, options.taxonomy);
  for (const auto& note : run.notes) log::info("{}: {}", run.label, note);
}

Json analyze_options_to_json(const AnalyzeOptions& options) {
  Json json = {{"analyses", Json::array()}};
  for (const auto& analysis : kAnalyses)
    if (options.*analysis.wanted) json["analyses"].push_back(analysis.name);
  for (const auto& option : analysis_options()) {
    const auto value = option.load(options);
    const auto* count = std::get_if<std::uint64_t>(&value);
    // Record rarely used options only if they differ from their default.
    const bool rare = option.group == OptionGroup::capture ||
                      option.group == OptionGroup::statistics || option.kind == OptionKind::text ||
                      option.name == "partial";
    if (option.name == "label" || (rare && value == option.fallback)) continue;
    const auto key = option_json_key(option);
    Json& entry = json[key];
    if (option.kind == OptionKind::text)
      entry = id_or_base_name(std::get<std::string>(value));
    else if (count != nullptr && *count < option.least)
      entry = "auto";
    else
      std::visit([&](const auto& plain) { entry = plain; }, value);
  }
  return json;
}

std::string analysis_name_of_option(const std::string& key) {
  constexpr const char* kNames[] = {"", "", "pca", "rotation", "plasticity", "geometry", ""};
  for (const auto& option : analysis_options())
    if (option_json_key(option) == key && key != "keys")
      return kNames[static_cast<std::size_t>(option.group)];
  return "plasticity";
}

Json summary_json(const AnalysisRun& run, const UndefinedCounts& undefined,
                  const AnalyzeOptions& options) {
  Json summary = {{"model", run.label},
                  {"capture_hash", fingerprint_capture(options.data_root)},
                  {"data_root", id_or_base_name(options.data_root)},
                  {"capture", run.capture},
                  {"capture_state", run.state.empty() ? Json::object()
                                                      : shorten_paths_in_json(parse_json(
                                                            run.state, layout::kStateFile))},
                  {"versions", {{"qkscope", version_string()}}},
                  {"counts", head_counts_json(run)},
                  {"options", analyze_options_to_json(options)},
                  {"texts", run.texts},
                  {"warnings", run.warnings},
                  {"notes", run.notes},
                  {"undefined", undefined}};
  for (const auto& analysis : kAnalyses)
    if (options.*analysis.wanted) summary[analysis.name] = measures_json(run, analysis.measures());
  if (options.pca) {
    summary["taxonomy"] =
        class_counts_json(run, HeadClassCriterion::first_component, options.taxonomy);
    summary["taxonomy_axis"] =
        class_counts_json(run, HeadClassCriterion::drift_axis, options.taxonomy);
  }
  if (options.plasticity) summary["profile"] = profile_json(run, options);
  return summary;
}

}  // namespace qkscope
