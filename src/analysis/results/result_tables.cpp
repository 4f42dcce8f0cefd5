#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "analysis/results/few_rows.h"
#include "analysis/results/row_builder.h"
#include "base/core/nan.h"
#include "base/core/thread_pool.h"
#include "base/core/translate_exceptions.h"
#include "base/numerics/correlation.h"
#include "qkscope/analysis.h"

namespace qkscope {
namespace {

using Type = Table::Type;

// ---- PCA and taxonomy.

constexpr HeadClass kClasses[] = {HeadClass::position_dominated, HeadClass::q_positional,
                                  HeadClass::k_positional, HeadClass::content_focused,
                                  HeadClass::mixed};

void add_qk(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows(run, "qk",
                  head_columns({{"pc", Type::integer},
                                {"explained_variance", Type::real},
                                {"r_q", Type::real},
                                {"p_q", Type::real},
                                {"r_k", Type::real},
                                {"p_k", Type::real},
                                {"log10_p_q", Type::real},
                                {"log10_p_k", Type::real},
                                {"mu_q", Type::real},
                                {"mu_k", Type::real},
                                {"slope_q", Type::real},
                                {"slope_k", Type::real},
                                {"fisher", Type::real},
                                {"positional_variance_q", Type::real},
                                {"positional_variance_k", Type::real},
                                {"qk_accuracy", Type::real, RowBuilder::kNeedsRows},
                                {"r_q_null", Type::real},
                                {"r_k_null", Type::real}}));
  for (const auto& head : run.heads) {
    if (!head.pca) continue;
    const PcaResult& pca = *head.pca;
    for (std::size_t i = 0; i < pca.components.size(); ++i) {
      const auto& c = pca.components[i];
      const auto first = [&](double value) { return i == 0 ? value : kNan; };
      rows.add(head_cells(
                   run, head,
                   {static_cast<std::int64_t>(i), c.explained_variance, c.q.r, c.q.p, c.k.r, c.k.p,
                    c.q.log10_p, c.k.log10_p, first(pca.mu_q), first(pca.mu_k), first(pca.slope_q),
                    first(pca.slope_k), first(pca.fisher), first(pca.positional_variance_q),
                    first(pca.positional_variance_k), first(pca.qk_accuracy),
                    mean_abs_r_by_chance(head.n_q), mean_abs_r_by_chance(head.n_k)}),
               i == 0 ? undefined_reason(head) : "first_component_only");
    }
  }
  rows.finish(results);
}

void add_taxonomy(const AnalysisRun& run, const AnalyzeOptions& options, ResultTables& results) {
  RowBuilder heads(run, "taxonomy",
                   head_columns({{"r_q", Type::real},
                                 {"r_k", Type::real},
                                 {"class", Type::text},
                                 {"few_rows", Type::boolean}}));
  struct Count {
    std::map<std::string, std::int64_t> of;
    std::int64_t total = 0;
  };
  std::map<std::string, Count> counts;
  for (const auto& head : run.heads) {
    if (!head.pca || head.pca->components.empty()) continue;
    const auto& first = head.pca->components.front();
    const std::string name = to_string(classify(first.q.r, first.k.r, options.taxonomy));
    heads.add(head_cells(run, head,
                         {first.q.r, first.k.r, name, std::int64_t{has_few_rows(head) ? 1 : 0}}),
              undefined_reason(head));
    if (name.empty()) continue;
    for (const auto& group : {std::string("all"), to_string(head.rope)}) {
      ++counts[group].of[name];
      ++counts[group].total;
    }
  }
  heads.finish(results);
  RowBuilder rows(run, "taxonomy_counts",
                  {{"model", Type::text},
                   {"layers", Type::text},
                   {"class", Type::text},
                   {"heads", Type::integer},
                   {"fraction", Type::real}});
  for (auto& [group, count] : counts)
    for (const auto head_class : kClasses) {
      const auto n = count.of[to_string(head_class)];
      rows.add({run.label, group, to_string(head_class), n,
                static_cast<double>(n) / static_cast<double>(count.total)},
               "");
    }
  rows.finish(results);
}

// PCA of queries and of keys alone, as qk-pca-analysis gives it.
void add_correlations(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows(run, "correlations",
                  {{"model", Type::text},
                   {"layer", Type::integer},
                   {"head", Type::integer},
                   {"kind", Type::text},
                   {"pca_dim", Type::integer},
                   {"correlation", Type::real},
                   {"p_value", Type::real},
                   {"explained_variance_ratio", Type::real},
                   {"rows", Type::integer}});
  const auto add = [&](const HeadReport& head, int number, const char* kind, std::int64_t count,
                       const std::vector<SideComponent>& components) {
    for (std::size_t i = 0; i < components.size(); ++i)
      rows.add({run.label, std::int64_t{head.query.layer}, std::int64_t{number}, std::string(kind),
                static_cast<std::int64_t>(i), components[i].with_position.r,
                components[i].with_position.p, components[i].explained_variance, count},
               undefined_reason(head));
  };
  for (const auto& head : run.heads) {
    add(head, head.query.head, "q", head.n_q, head.q_components);
    add(head, head.k_head, "k", head.n_k, head.k_components);
  }
  rows.finish(results);
}

// ---- Rotation and complement.

// Whether turning planes were looked for, which takes rows.
bool searched(const RotationResult& rotation) {
  return rotation.complement.empty() || !std::isnan(rotation.complement.front().angle_r);
}

void add_rotated(const AnalysisRun& run, const AnalyzeOptions& options, ResultTables& results) {
  RowBuilder rows(run, "rotated",
                  head_columns({{"position_r", Type::real},
                                {"r_q_a", Type::real},
                                {"r_k_a", Type::real},
                                {"alpha_q", Type::real},
                                {"alpha_k", Type::real},
                                {"mu_q_a", Type::real},
                                {"mu_k_a", Type::real},
                                {"mu_q_b", Type::real},
                                {"mu_k_b", Type::real},
                                {"bias_strength", Type::real},
                                {"separation_strength", Type::real},
                                {"var_frac_a", Type::real},
                                {"var_frac_b", Type::real},
                                {"plane_var_fraction", Type::real},
                                {"residual_pos_r", Type::real},
                                {"content_var_b", Type::real},
                                {"omega", Type::real, RowBuilder::kNeedsRows},
                                {"omega_r_squared", Type::real, RowBuilder::kNeedsRows},
                                {"active_planes", Type::integer, RowBuilder::kNeedsRows},
                                {"position_r_null", Type::real, RowBuilder::kNeedsRows},
                                {"r_q_a_null", Type::real, RowBuilder::kNeedsRows},
                                {"r_k_a_null", Type::real, RowBuilder::kNeedsRows},
                                {"position_r_p", Type::real, RowBuilder::kNeedsRows},
                                {"r_q_a_p", Type::real, RowBuilder::kNeedsRows},
                                {"r_k_a_p", Type::real, RowBuilder::kNeedsRows},
                                {"few_rows", Type::boolean}}));
  for (const auto& head : run.heads) {
    if (!head.rotation) continue;
    const RotationResult& r = *head.rotation;
    rows.add(head_cells(run, head,
                        {r.position_r,
                         r.r_q_a,
                         r.r_k_a,
                         r.alpha_q,
                         r.alpha_k,
                         r.mu_q_a,
                         r.mu_k_a,
                         r.mu_q_b,
                         r.mu_k_b,
                         r.bias_strength,
                         r.separation_strength,
                         r.var_frac_a,
                         r.var_frac_b,
                         r.plane_var_fraction,
                         r.residual_pos_r,
                         r.content_var_b,
                         r.omega,
                         r.omega_r_squared,
                         searched(r) ? Table::Cell(std::int64_t{r.active_planes()}) : kNan,
                         r.null.position_r,
                         r.null.r_q_a,
                         r.null.r_k_a,
                         r.null.position_r_p,
                         r.null.r_q_a_p,
                         r.null.r_k_a_p,
                         std::int64_t{has_few_rows(head) ? 1 : 0}}),
             !r.undefined.empty()                       ? r.undefined
             : options.rotation_options.null_draws == 0 ? "no_shuffles"
                                                        : undefined_reason(head));
  }
  rows.finish(results);
}

void add_complement(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows(run, "complement",
                  head_columns({{"pair", Type::integer},
                                {"variance_share", Type::real},
                                {"variance_share_total", Type::real},
                                {"angle_r", Type::real, RowBuilder::kNeedsRows},
                                {"omega", Type::real, RowBuilder::kNeedsRows},
                                {"nearest_inv_freq", Type::real, RowBuilder::kNeedsRows},
                                {"separability", Type::real, RowBuilder::kNeedsRows},
                                {"active", Type::boolean, RowBuilder::kNeedsRows}}));
  for (const auto& head : run.heads) {
    if (!head.rotation) continue;
    for (std::size_t i = 0; i < head.rotation->complement.size(); ++i) {
      const auto& pair = head.rotation->complement[i];
      rows.add(
          head_cells(
              run, head,
              {static_cast<std::int64_t>(i), pair.variance_share, pair.variance_share_total,
               pair.angle_r, pair.omega, pair.nearest_inv_freq, pair.separability,
               std::isnan(pair.angle_r) ? Table::Cell(kNan) : std::int64_t{pair.active ? 1 : 0}}),
          std::isnan(pair.nearest_inv_freq) ? "rope_frequencies_unknown" : undefined_reason(head));
    }
  }
  rows.finish(results);
}

// ---- Plasticity.

void add_metrics(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows(run, "head_metrics",
                  {{"layer", Type::integer},
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
                   {"ap_profile_overall", Type::real, RowBuilder::kNeedsKeys},
                   {"ap_first20", Type::real, RowBuilder::kNeedsKeys},
                   {"ap_last20", Type::real, RowBuilder::kNeedsKeys},
                   {"ap_drop", Type::real, RowBuilder::kNeedsKeys},
                   {"head", Type::integer},
                   {"ap_free_overall", Type::real, RowBuilder::kNeedsRows},
                   {"ap_free_first20", Type::real, RowBuilder::kNeedsRows},
                   {"ap_free_last20", Type::real, RowBuilder::kNeedsRows},
                   {"ap_free_drop", Type::real, RowBuilder::kNeedsRows},
                   {"gaussian", Type::text}});
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
                   {"n_eligible", Type::integer},
                   {"stderr", Type::real},
                   {"head", Type::integer}});
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    for (const auto& cell : head.plasticity->table)
      rows.add({std::int64_t{head.query.layer}, std::int64_t{head.query.head},
                std::int64_t{head.k_head}, std::int64_t{cell.q_bucket}, std::int64_t{cell.k_bucket},
                cell.mean.ap, cell.mean.pairs, run.label, to_string(head.rope), cell.mean.eligible,
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
                   {"head", Type::integer}});
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    for (std::size_t i = 0; i < head.plasticity->component_r2.size(); ++i)
      rows.add({std::int64_t{head.query.layer}, std::int64_t{head.query.head},
                std::int64_t{head.k_head}, static_cast<std::int64_t>(i),
                head.plasticity->component_r2[i], head.plasticity->component_weight[i], run.label,
                to_string(head.rope), std::int64_t{head.query.head}},
               undefined_reason(head));
  }
  rows.finish(results);
}

// ---- Errors of the means over heads.

void add_errors(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows(run, "errors",
                  {{"model", Type::text},
                   {"quantity", Type::text},
                   {"heads", Type::text},
                   {"mean", Type::real},
                   {"se", Type::real},
                   {"low", Type::real},
                   {"high", Type::real},
                   {"texts", Type::integer},
                   {"n_heads", Type::integer}});
  for (const auto& error : run.errors)
    rows.add({run.label, error.quantity, error.heads, error.mean, error.se, error.low, error.high,
              error.texts, error.n_heads},
             error.texts < 2 ? "single_text" : "too_few_rows");
  rows.finish(results);
}

// ---- Points for pictures.

std::string side_of(const ScatterPoint& point) {
  return point.side == HeadKind::query ? "q" : "k";
}

// A column per component that was asked for, PC0 and PC1 in any case; heads with fewer have NaN.
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

// Every plane of the complement of the heads that were asked for.
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

// Adds one or two tables of the run.
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
  if (options.errors && !run.from_sums) append({add_errors});
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
    // The scatter, by far the largest, comes last in the list: it is begun first.
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
