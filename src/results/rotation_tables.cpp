#include "results/row_builder.h"

namespace qkscope {
namespace {

using Type = Table::Type;

void add_rotated(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows("rotated", head_columns({{"position_r", Type::real},
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
                                           {"omega", Type::real},
                                           {"omega_r_squared", Type::real},
                                           {"active_planes", Type::integer}}));
  for (const auto& head : run.heads) {
    if (!head.rotation) continue;
    const RotationResult& r = *head.rotation;
    rows.add(head_cells(run, head,
                        {r.position_r, r.r_q_a, r.r_k_a, r.alpha_q, r.alpha_k, r.mu_q_a, r.mu_k_a,
                         r.mu_q_b, r.mu_k_b, r.bias_strength, r.separation_strength, r.var_frac_a,
                         r.var_frac_b, r.plane_var_fraction, r.residual_pos_r, r.content_var_b,
                         r.omega, r.omega_r_squared, std::int64_t{r.active_planes()}}),
             r.undefined.empty() ? undefined_reason(head) : r.undefined);
  }
  rows.finish(results);
}

void add_complement(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows("complement", head_columns({{"pair", Type::integer},
                                              {"variance_share", Type::real},
                                              {"variance_share_total", Type::real},
                                              {"angle_r", Type::real},
                                              {"omega", Type::real},
                                              {"nearest_inv_freq", Type::real},
                                              {"separability", Type::real},
                                              {"active", Type::boolean}}));
  for (const auto& head : run.heads) {
    if (!head.rotation) continue;
    for (std::size_t i = 0; i < head.rotation->complement.size(); ++i) {
      const auto& pair = head.rotation->complement[i];
      rows.add(
          head_cells(run, head,
                     {static_cast<std::int64_t>(i), pair.variance_share, pair.variance_share_total,
                      pair.angle_r, pair.omega, pair.nearest_inv_freq, pair.separability,
                      std::int64_t{pair.active ? 1 : 0}}),
          std::isnan(pair.nearest_inv_freq) ? "rope_frequencies_unknown" : undefined_reason(head));
    }
  }
  rows.finish(results);
}

}  // namespace

void add_rotation_tables(const AnalysisRun& run, ResultTables& results) {
  add_rotated(run, results);
  add_complement(run, results);
}

}  // namespace qkscope
