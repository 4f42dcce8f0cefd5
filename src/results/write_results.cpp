#include "results/write_results.h"

#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>

#include <fmt/chrono.h>

#include "captures/layout.h"
#include "core/blake2b.h"
#include "core/edge.h"
#include "core/error.h"
#include "core/log.h"
#include "core/nan.h"
#include "core/thread_pool.h"
#include "io/durable_file.h"
#include "io/folder.h"
#include "io/mapped_file.h"
#include "io/open_folder.h"
#include "io/output_file.h"
#include "qkscope/version.h"

namespace qkscope {
namespace {

// One number per head, NaN where the head has none.
struct Measure {
  const char* name;
  std::function<double(const HeadReport&)> of;
};

std::vector<Measure> pca_measures() {
  const auto first = [](auto field) {
    return [field](const HeadReport& head) {
      return head.pca && !head.pca->components.empty() ? field(head.pca->components.front()) : kNan;
    };
  };
  return {{"r_q", first([](const PcaComponent& c) { return c.q.r; })},
          {"r_k", first([](const PcaComponent& c) { return c.k.r; })},
          {"abs_r_k", first([](const PcaComponent& c) { return std::fabs(c.k.r); })},
          {"explained_variance", first([](const PcaComponent& c) { return c.explained_variance; })},
          {"fisher", [](const auto& head) { return head.pca ? head.pca->fisher : kNan; }},
          {"positional_variance_q",
           [](const auto& head) { return head.pca ? head.pca->positional_variance_q : kNan; }},
          {"positional_variance_k",
           [](const auto& head) { return head.pca ? head.pca->positional_variance_k : kNan; }}};
}

std::vector<Measure> rotation_measures() {
  const auto field = [](double RotationResult::*member) {
    return
        [member](const HeadReport& head) { return head.rotation ? *head.rotation.*member : kNan; };
  };
  using R = RotationResult;
  return {{"position_r", field(&R::position_r)},
          {"r_q_a", field(&R::r_q_a)},
          {"r_k_a", field(&R::r_k_a)},
          {"abs_r_k_a",
           [](const auto& head) { return head.rotation ? std::fabs(head.rotation->r_k_a) : kNan; }},
          {"alpha_q", field(&R::alpha_q)},
          {"alpha_k", field(&R::alpha_k)},
          {"mu_q_a", field(&R::mu_q_a)},
          {"mu_k_a", field(&R::mu_k_a)},
          {"bias_strength", field(&R::bias_strength)},
          {"separation_strength", field(&R::separation_strength)},
          {"var_frac_a", field(&R::var_frac_a)},
          {"var_frac_b", field(&R::var_frac_b)},
          {"plane_var_fraction", field(&R::plane_var_fraction)},
          {"residual_pos_r", field(&R::residual_pos_r)},
          {"content_var_b", field(&R::content_var_b)},
          {"omega_r_squared", field(&R::omega_r_squared)},
          {"active_planes", [](const auto& head) {
             return head.rotation ? static_cast<double>(head.rotation->active_planes()) : kNan;
           }}};
}

std::vector<Measure> plasticity_measures() {
  const auto field = [](double PlasticityResult::*member) {
    return [member](const HeadReport& head) {
      return head.plasticity ? *head.plasticity.*member : kNan;
    };
  };
  using P = PlasticityResult;
  return {
      {"q_R2_pos", field(&P::r2_pos)},       {"q_beta_norm", field(&P::beta_norm)},
      {"q_R2_scalar", field(&P::r2_scalar)}, {"q_mae_ratio", field(&P::mae_ratio)},
      {"ap_overall", field(&P::ap_overall)}, {"ap_profile_overall", field(&P::ap_profile_overall)},
      {"ap_first20", field(&P::ap_first20)}, {"ap_last20", field(&P::ap_last20)},
      {"ap_drop", field(&P::ap_drop)}};
}

// Mean, standard deviation (ddof 1) and number of heads of each measure in each group of layers.
Json means(const AnalysisRun& run, const std::vector<Measure>& measures) {
  Json result = Json::object();
  for (const char* group : {"all", "rope", "nope", "unknown"}) {
    Json of_group = Json::object();
    for (const auto& measure : measures) {
      std::vector<double> values;
      for (const auto& head : run.heads) {
        if (std::string(group) != "all" && to_string(head.rope) != group) continue;
        const double value = measure.of(head);
        if (!std::isnan(value)) values.push_back(value);
      }
      if (values.empty()) continue;
      double mean = 0;
      for (const double value : values) mean += value / static_cast<double>(values.size());
      double spread = 0;
      for (const double value : values) spread += (value - mean) * (value - mean);
      Json entry = {{"mean", mean}, {"heads", values.size()}};
      entry["std"] = values.size() > 1
                         ? Json(std::sqrt(spread / static_cast<double>(values.size() - 1)))
                         : Json();
      of_group[measure.name] = entry;
    }
    if (!of_group.empty()) result[group] = of_group;
  }
  return result;
}

Json taxonomy_counts(const ResultTables& results) {
  Json counts = Json::object();
  for (const auto& result : results.tables) {
    if (result.name != "taxonomy_counts") continue;
    const auto& columns = result.table.columns();
    for (std::size_t i = 0; i < static_cast<std::size_t>(result.table.rows()); ++i)
      counts[columns[1].texts[i]][columns[2].texts[i]] = {{"heads", columns[3].integers[i]},
                                                          {"fraction", columns[4].reals[i]}};
  }
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
            {"plasticity", run.times.plasticity}}}};
}

}  // namespace

Json options_json(const AnalyzeOptions& options) {
  const auto& p = options.plasticity_options;
  using Separation = RotationOptions::Separation;
  using Kind = PlasticityOptions::QueryModelKind;
  Json planes_of = Json::array();
  for (const auto& head : options.planes_of)
    planes_of.push_back(fmt::format("{}.{}", head.layer, head.head));
  Json analyses = Json::array();
  if (options.pca) analyses.push_back("pca");
  if (options.rotation) analyses.push_back("rotation");
  if (options.plasticity) analyses.push_back("plasticity");
  return {
      {"analyses", analyses},
      {"components", options.pca_options.components},
      {"taxonomy_high", options.taxonomy.high},
      {"taxonomy_low", options.taxonomy.low},
      {"separation", options.rotation_options.separation == Separation::mean ? "mean" : "eigen"},
      {"pairs", options.rotation_options.pairs},
      {"active_angle_r", options.rotation_options.active_angle_r},
      {"max_omega", options.rotation_options.max_omega},
      {"query_model", p.profile_model == Kind::bucket ? "bucket" : "linear"},
      {"max_pairs", p.max_pairs},
      {"p_alpha", p.p_alpha},
      {"heatmap_bins", p.heatmap_bins},
      {"max_tokens", options.max_tokens},
      {"scatter", options.scatter},
      {"planes_of", planes_of},
      {"seed", options.seed}};
}

std::string capture_hash(const std::string& data_root) {
  const auto file = data_root + "/" + layout::kStateFile;
  return path_exists(file) ? fmt::format("{:016x}", blake2b_64(MappedFile(file).text())) : "";
}

namespace {

// What the capture says of itself as a whole: model, dataset, sampling, as far as it does.
Json capture_state(const std::string& data_root) {
  const auto file = data_root + "/" + layout::kStateFile;
  return path_exists(file) ? load_json(file) : Json::object();
}

}  // namespace

Json summarise(const AnalysisRun& run, const ResultTables& results, const AnalyzeOptions& options) {
  Json summary = {{"model", run.label},
                  {"capture_hash", capture_hash(options.data_root)},
                  {"data_root", options.data_root},
                  {"capture", run.capture},
                  {"capture_state", capture_state(options.data_root)},
                  {"versions", {{"qkscope", version_string()}}},
                  {"counts", head_counts(run)},
                  {"options", options_json(options)},
                  {"undefined", results.undefined}};
  if (options.pca) summary["pca"] = means(run, pca_measures());
  if (options.pca) summary["taxonomy"] = taxonomy_counts(results);
  if (options.rotation) summary["rotation"] = means(run, rotation_measures());
  if (options.plasticity) summary["plasticity"] = means(run, plasticity_measures());
  return summary;
}

void remove_summary(const std::string& folder) {
  if (!is_folder(folder)) return;
  OpenFolder(folder).remove_file("summary.json");
  sync_folder(folder);
}

void write_results(const std::string& folder, const AnalysisRun& run,
                   const AnalyzeOptions& options) {
  at_edge([&] {
    const auto begun = std::chrono::steady_clock::now();
    make_folders(folder);
    remove_summary(folder);
    const ResultTables results = result_tables(run, options);
    parallel_for(2 * std::ssize(results.tables), [&](std::int64_t i) {
      const auto& result = results.tables[static_cast<std::size_t>(i / 2)];
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
  });
}

void report_failed_heads(const AnalysisRun& run, const std::string& folder) {
  at_edge([&] {
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
