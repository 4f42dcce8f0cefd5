#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "analysis/results/row_builder.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "qkscope/analysis.h"

namespace qkscope {
namespace {

using Type = Table::Type;

// ---- Plasticity.

const std::vector<RowBuilder::ColumnSpec> kMetricColumns = {
    {"layer", Type::integer},
    {"q_head", Type::integer},
    {"k_head", Type::integer},
    {"n_q_tokens", Type::integer},
    {"n_k_tokens", Type::integer},
    {"d_model", Type::integer},
    {"q_R2_pos", Type::real},
    {"q_beta_norm", Type::real},
    {"q_R2_scalar", Type::real},
    {"q_mae_baseline", Type::real},
    {"q_mae_proj", Type::real, RowBuilder::kNeedsRows},
    {"q_mae_ratio", Type::real, RowBuilder::kNeedsRows},
    {"q_resid0_skew", Type::real, RowBuilder::kNeedsRows},
    {"q_resid0_kurt", Type::real, RowBuilder::kNeedsRows},
    {"q_resid0_ks_p", Type::real, RowBuilder::kNeedsRows},
    {"q_noise_med_abs_skew", Type::real, RowBuilder::kNeedsRows},
    {"q_noise_med_abs_kurt", Type::real, RowBuilder::kNeedsRows},
    {"q_noise_med_ks_p", Type::real, RowBuilder::kNeedsRows},
    {"q_noise_frac_ks_p_lt_alpha", Type::real, RowBuilder::kNeedsRows},
    {"ap_overall", Type::real, RowBuilder::kNeedsKeys},
    {"model", Type::text},
    {"rope", Type::text},
    {"attention", Type::text},
    {"ap_profile_overall", Type::real, RowBuilder::kNeedsKeys},
    {"ap_first20", Type::real, RowBuilder::kNeedsKeys},
    {"ap_last20", Type::real, RowBuilder::kNeedsKeys},
    {"ap_drop", Type::real, RowBuilder::kNeedsKeys},
    {"head", Type::integer},
    {"ap_free_overall", Type::real, RowBuilder::kNeedsRows},
    {"ap_free_first20", Type::real, RowBuilder::kNeedsRows},
    {"ap_free_last20", Type::real, RowBuilder::kNeedsRows},
    {"ap_free_drop", Type::real, RowBuilder::kNeedsRows},
    {"gaussian", Type::text}};

void add_metrics(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows(run, "head_metrics", kMetricColumns);
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    const PlasticityResult& p = *head.plasticity;
    const ResidualNormality& n = p.normality;
    rows.add({std::int64_t{head.query.layer},
              std::int64_t{head.query.head},
              std::int64_t{head.k_head},
              head.n_q,
              head.n_k,
              std::int64_t{head.dim},
              p.r2_pos,
              p.beta_norm,
              p.r2_scalar,
              p.mae_baseline,
              p.mae_projection,
              p.mae_ratio,
              n.first_skew,
              n.first_kurtosis,
              n.first_ks_p,
              n.median_abs_skew,
              n.median_abs_kurtosis,
              n.median_ks_p,
              n.share_below_alpha,
              p.ap_overall,
              run.label,
              to_string(head.rope),
              attention_name(head.window),
              p.ap_profile_overall,
              p.ap_first20,
              p.ap_last20,
              p.ap_drop,
              std::int64_t{head.query.head},
              p.ap_free_overall,
              p.ap_free_first20,
              p.ap_free_last20,
              p.ap_free_drop,
              std::string(!p.gaussian   ? ""
                          : *p.gaussian ? "yes"
                                        : "no")},
             undefined_reason(head));
  }
  rows.finish(results);
}

void add_bucket_table(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows(run, "head_bucket_plasticity",
                  {{"layer", Type::integer},
                   {"q_head", Type::integer},
                   {"k_head", Type::integer},
                   {"q_bucket", Type::integer},
                   {"k_bucket", Type::integer},
                   {"ap_bucket", Type::real, RowBuilder::kNeedsKeys},
                   {"n_pairs", Type::integer},
                   {"model", Type::text},
                   {"rope", Type::text},
                   {"attention", Type::text},
                   {"n_eligible", Type::integer},
                   {"stderr", Type::real},
                   {"head", Type::integer}});
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    for (const auto& cell : head.plasticity->table)
      rows.add(
          {std::int64_t{head.query.layer}, std::int64_t{head.query.head}, std::int64_t{head.k_head},
           std::int64_t{cell.q_bucket}, std::int64_t{cell.k_bucket}, cell.mean.ap, cell.mean.pairs,
           run.label, to_string(head.rope), attention_name(head.window), cell.mean.eligible,
           cell.mean.stderr_ap, std::int64_t{head.query.head}},
          cell.mean.pairs == 0 ? "no_pairs" : "pairs_in_one_example");
  }
  rows.finish(results);
}

// Why a number of the profile has no error; empty: for the reason that it does not exist itself.
std::string no_error_reason(const PlasticityResult& plasticity, double number) {
  if (std::isnan(number)) return "";
  const int groups = plasticity.profile_without.groups;
  return groups == 0 ? "no_errors_asked_for" : groups == 1 ? "single_text" : "needs_every_text";
}

void add_profile(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows(run, "head_profile",
                  head_columns({{"bin", Type::integer},
                                {"bin_low", Type::real},
                                {"bin_high", Type::real},
                                {"position", Type::real},
                                {"queries", Type::integer},
                                {"ap", Type::real, RowBuilder::kNeedsKeys},
                                {"n_pairs", Type::integer},
                                {"stderr", Type::real},
                                {"n_eligible", Type::integer},
                                {"se", Type::real, RowBuilder::kNeedsRows},
                                {"ap_free", Type::real, RowBuilder::kNeedsRows},
                                {"n_pairs_free", Type::integer},
                                {"se_free", Type::real, RowBuilder::kNeedsRows}}));
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    for (const auto& point : head.plasticity->profile)
      rows.add(
          head_cells(run, head,
                     {std::int64_t{point.bin}, point.low, point.high, point.position, point.queries,
                      point.mean.ap, point.mean.pairs, point.mean.stderr_ap, point.mean.eligible,
                      point.se, point.ap_free, point.free_pairs, point.se_free}),
          point.mean.pairs > 0 ? "pairs_in_one_example"
          : point.queries < 2  ? "single_query"
                               : "no_pairs",
          no_error_reason(*head.plasticity, point.mean.ap));
  }
  rows.finish(results);
}

void add_profile_bins(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows(run, "profile_bins",
                  head_columns({{"kind", Type::text},
                                {"bin", Type::integer},
                                {"bin_low", Type::real},
                                {"bin_high", Type::real},
                                {"ap", Type::real, RowBuilder::kNeedsKeys},
                                {"bins", Type::integer},
                                {"se", Type::real, RowBuilder::kNeedsRows}}));
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    for (const auto& mean : head.plasticity->profile_bin_means)
      rows.add(head_cells(run, head,
                          {to_string(mean.kind), std::int64_t{mean.bin}, mean.low, mean.high,
                           mean.ap, mean.bins, mean.se}),
               "no_bins", no_error_reason(*head.plasticity, mean.ap));
  }
  rows.finish(results);
}

void add_heatmap(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows(run, "pair_heatmap",
                  head_columns({{"key_distance_low", Type::real},
                                {"key_distance_high", Type::real},
                                {"query_distance_low", Type::real},
                                {"query_distance_high", Type::real},
                                {"ap", Type::real, RowBuilder::kNeedsKeys},
                                {"n_pairs", Type::integer},
                                {"n_eligible", Type::integer}}));
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    for (const auto& cell : head.plasticity->heatmap)
      rows.add(head_cells(run, head,
                          {cell.key_distance_low, cell.key_distance_high, cell.query_distance_low,
                           cell.query_distance_high, cell.ap, cell.pairs, cell.eligible}),
               "no_pairs");
  }
  rows.finish(results);
}

void add_weights(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows(run, "head_component_weights",
                  {{"layer", Type::integer},
                   {"q_head", Type::integer},
                   {"k_head", Type::integer},
                   {"component", Type::integer},
                   {"component_r2", Type::real},
                   {"component_weight", Type::real},
                   {"model", Type::text},
                   {"rope", Type::text},
                   {"attention", Type::text},
                   {"head", Type::integer}});
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    for (std::size_t i = 0; i < head.plasticity->component_r2.size(); ++i)
      rows.add({std::int64_t{head.query.layer}, std::int64_t{head.query.head},
                std::int64_t{head.k_head}, static_cast<std::int64_t>(i),
                head.plasticity->component_r2[i], head.plasticity->component_weight[i], run.label,
                to_string(head.rope), attention_name(head.window), std::int64_t{head.query.head}},
               undefined_reason(head));
  }
  rows.finish(results);
}

// ---- Points for scatter plots.

std::string side_of(const ScatterPoint& point) {
  return point.side == HeadKind::query ? "q" : "k";
}

// One column per component, at least PC0 and PC1; NaN for heads with fewer components.
void add_scatter_table(const AnalysisRun& run, const AnalyzeOptions& options,
                       ResultTables& results) {
  bool tokens = false;
  for (const auto& head : run.heads)
    for (const auto& p : head.scatter) tokens = tokens || !p.token.empty();
  const auto components =
      static_cast<std::size_t>(options.pca ? std::max(2, options.pca_options.components) : 2);
  Table table;
  for (const auto& column : head_columns({{"side", Type::text}, {"position", Type::integer}}))
    table.column(column.name, column.type);
  for (std::size_t i = 0; i < components; ++i) table.column(fmt::format("pc{}", i), Type::real);
  for (const char* name : {"a", "b", "c0", "c1"}) table.column(name, Type::real);
  if (tokens) table.column("token", Type::text);
  for (const auto& head : run.heads)
    for (const auto& p : head.scatter) {
      std::vector<Table::Cell> cells = {side_of(p), std::int64_t{p.position}};
      for (std::size_t i = 0; i < components; ++i)
        cells.emplace_back(i < p.pc.size() ? p.pc[i] : kNan);
      for (const double x : {p.a, p.b, p.c0, p.c1}) cells.emplace_back(x);
      if (tokens) cells.emplace_back(p.token);
      table.add(head_cells(run, head, std::move(cells)));
    }
  results.tables.push_back({"head_scatter", std::move(table), false});
}

// Coordinates on every plane of the complement, for the heads in options.planes_of.
void add_planes_table(const AnalysisRun& run, ResultTables& results) {
  Table table;
  for (const auto& column : head_columns({{"side", Type::text},
                                          {"position", Type::integer},
                                          {"plane", Type::integer},
                                          {"x", Type::real},
                                          {"y", Type::real}}))
    table.column(column.name, column.type);
  for (const auto& head : run.heads)
    for (const auto& p : head.scatter)
      for (std::size_t i = 0; 2 * i + 1 < p.planes.size(); ++i)
        table.add(head_cells(run, head,
                             {side_of(p), std::int64_t{p.position}, static_cast<std::int64_t>(i),
                              p.planes[2 * i], p.planes[2 * i + 1]}));
  results.tables.push_back({"head_planes", std::move(table), false});
}

// Adds one or two tables of a run to its results.
using AddTables = std::function<void(const AnalysisRun&, ResultTables&)>;

std::vector<AddTables> tables_of(const AnalysisRun& run, const AnalyzeOptions& options) {
  const auto with_options = [&](auto add) {
    return [&options, add](const AnalysisRun& of, ResultTables& to) { add(of, options, to); };
  };
  std::vector<AddTables> list;
  const auto append = [&](std::initializer_list<AddTables> more) {
    list.insert(list.end(), more.begin(), more.end());
  };
  if (options.pca) append({add_qk, with_options(add_taxonomy)});
  if (options.pca && options.pca_options.separate_components > 0) append({add_correlations});
  if (options.rotation) append({with_options(add_rotated), add_complement});
  if (options.plasticity)
    append(
        {add_metrics, add_bucket_table, add_profile, add_profile_bins, add_heatmap, add_weights});
  if (options.errors && !run.from_sums)
    append({[](const AnalysisRun& of, ResultTables& to) { add_errors(of, of.errors, to); }});
  if (options.scatter > 0 && !run.from_sums && (options.pca || options.rotation))
    append({with_options(add_scatter_table)});
  if (!options.planes_of.empty()) append({add_planes_table});
  return list;
}

}  // namespace

ResultTables result_tables(const AnalysisRun& run, const AnalyzeOptions& options) {
  return translate_exceptions([&] {
    const auto list = tables_of(run, options);
    std::vector<ResultTables> parts(list.size());
    // Start with the last table: head_scatter, by far the largest, is at the end of the list.
    parallel_for(std::ssize(list), [&](std::int64_t i) {
      const auto place = list.size() - 1 - static_cast<std::size_t>(i);
      list[place](run, parts[place]);
    });
    ResultTables results;
    for (auto& part : parts) {
      std::move(part.tables.begin(), part.tables.end(), std::back_inserter(results.tables));
      results.undefined.merge(part.undefined);
    }
    results.tables.insert(results.tables.end(), run.more.begin(), run.more.end());
    return results;
  });
}

}  // namespace qkscope
