#include "results/row_builder.h"

namespace qkscope {
namespace {

using Type = Table::Type;

void add_metrics(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows("head_metrics", {{"layer", Type::integer},
                                   {"q_head", Type::integer},
                                   {"k_head", Type::integer},
                                   {"n_q_tokens", Type::integer},
                                   {"n_k_tokens", Type::integer},
                                   {"d_model", Type::integer},
                                   {"q_R2_pos", Type::real},
                                   {"q_beta_norm", Type::real},
                                   {"q_R2_scalar", Type::real},
                                   {"q_mae_baseline", Type::real},
                                   {"q_mae_proj", Type::real},
                                   {"q_mae_ratio", Type::real},
                                   {"q_resid0_skew", Type::real},
                                   {"q_resid0_kurt", Type::real},
                                   {"q_resid0_ks_p", Type::real},
                                   {"q_noise_med_abs_skew", Type::real},
                                   {"q_noise_med_abs_kurt", Type::real},
                                   {"q_noise_med_ks_p", Type::real},
                                   {"q_noise_frac_ks_p_lt_alpha", Type::real},
                                   {"ap_overall", Type::real},
                                   {"model", Type::text},
                                   {"rope", Type::text},
                                   {"ap_profile_overall", Type::real},
                                   {"ap_first20", Type::real},
                                   {"ap_last20", Type::real},
                                   {"ap_drop", Type::real}});
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
              p.ap_drop},
             undefined_reason(head));
  }
  rows.finish(results);
}

void add_bucket_table(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows("head_bucket_plasticity", {{"layer", Type::integer},
                                             {"q_head", Type::integer},
                                             {"k_head", Type::integer},
                                             {"q_bucket", Type::integer},
                                             {"k_bucket", Type::integer},
                                             {"ap_bucket", Type::real},
                                             {"n_pairs", Type::integer},
                                             {"model", Type::text},
                                             {"rope", Type::text},
                                             {"n_eligible", Type::integer},
                                             {"stderr", Type::real}});
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    for (const auto& cell : head.plasticity->table)
      rows.add(
          {std::int64_t{head.query.layer}, std::int64_t{head.query.head}, std::int64_t{head.k_head},
           std::int64_t{cell.q_bucket}, std::int64_t{cell.k_bucket}, cell.mean.ap, cell.mean.pairs,
           run.label, to_string(head.rope), cell.mean.eligible, cell.mean.stderr_ap},
          cell.mean.pairs == 0 ? "no_pairs" : "pairs_in_one_example");
  }
  rows.finish(results);
}

void add_profile(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows("head_profile", head_columns({{"q_bucket", Type::integer},
                                                {"position", Type::real},
                                                {"ap", Type::real},
                                                {"n_pairs", Type::integer},
                                                {"stderr", Type::real},
                                                {"n_queries", Type::integer},
                                                {"n_eligible", Type::integer}}));
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    for (const auto& point : head.plasticity->profile)
      rows.add(
          head_cells(run, head,
                     {std::int64_t{point.q_bucket}, point.position, point.mean.ap, point.mean.pairs,
                      point.mean.stderr_ap, point.queries, point.mean.eligible}),
          point.mean.pairs > 0 ? "pairs_in_one_example"
          : point.queries < 2  ? "single_query"
                               : "no_pairs");
  }
  rows.finish(results);
}

void add_heatmap(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows("pair_heatmap", head_columns({{"key_distance_low", Type::real},
                                                {"key_distance_high", Type::real},
                                                {"query_distance_low", Type::real},
                                                {"query_distance_high", Type::real},
                                                {"ap", Type::real},
                                                {"n_pairs", Type::integer}}));
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    for (const auto& cell : head.plasticity->heatmap)
      rows.add(head_cells(run, head,
                          {cell.key_distance_low, cell.key_distance_high, cell.query_distance_low,
                           cell.query_distance_high, cell.ap, cell.pairs}),
               "no_pairs");
  }
  rows.finish(results);
}

void add_weights(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows("head_component_weights", {{"layer", Type::integer},
                                             {"q_head", Type::integer},
                                             {"k_head", Type::integer},
                                             {"component", Type::integer},
                                             {"component_r2", Type::real},
                                             {"component_weight", Type::real},
                                             {"model", Type::text},
                                             {"rope", Type::text}});
  for (const auto& head : run.heads) {
    if (!head.plasticity) continue;
    for (std::size_t i = 0; i < head.plasticity->component_r2.size(); ++i)
      rows.add(
          {std::int64_t{head.query.layer}, std::int64_t{head.query.head}, std::int64_t{head.k_head},
           static_cast<std::int64_t>(i), head.plasticity->component_r2[i],
           head.plasticity->component_weight[i], run.label, to_string(head.rope)},
          undefined_reason(head));
  }
  rows.finish(results);
}

}  // namespace

void add_plasticity_tables(const AnalysisRun& run, ResultTables& results) {
  add_metrics(run, results);
  add_bucket_table(run, results);
  add_profile(run, results);
  add_heatmap(run, results);
  add_weights(run, results);
}

}  // namespace qkscope
