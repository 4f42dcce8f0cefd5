#include <cmath>
#include <functional>
#include <vector>

#include "analysis/results/measures.h"
#include "analysis/results/row_builder.h"
#include "analysis/results/warnings.h"
#include "base/core/numbers.h"
#include "base/numerics/correlation.h"

namespace qkscope {
namespace {

using Type = Table::Type;

void add_taxonomy_counts(const AnalysisRun& run, const TaxonomyOptions& options,
                         ResultTables& results) {
  RowBuilder rows(run, "taxonomy_counts",
                  {{"model", Type::text},
                   {"layers", Type::text},
                   {"class", Type::text},
                   {"heads", Type::integer},
                   {"fraction", Type::real},
                   {"heads_axis", Type::integer, RowBuilder::kNeedsRows},
                   {"fraction_axis", Type::real, RowBuilder::kNeedsRows}});
  const auto published = class_measures(ClassBy::first_component, options);
  const auto on_axis = class_measures(ClassBy::drift_axis, options);
  for (const char* group : kHeadGroups)
    for (std::size_t i = 0; i < published.size(); ++i) {
      const auto first = count_class(run, published[i], group);
      const auto axis = count_class(run, on_axis[i], group);
      if (first.of > 0)
        rows.add({run.label, std::string(group), std::string(published[i].name), first.heads,
                  first.fraction(), axis.of > 0 ? Table::Cell(axis.heads) : kNan, axis.fraction()},
                 run.texts < 2 ? "single_text" : "no_drift_in_other_texts");
    }
  rows.finish(results);
}

// One column of rotated.csv.
struct RotatedColumn {
  const char* name;
  std::function<Table::Cell(const RotationResult&)> of;
  RowBuilder::ColumnSpec::Needs needs = RowBuilder::ColumnSpec::Needs::nothing;
  Type type = Type::real;
};

Table::Cell active_planes(const RotationResult& r) {
  const bool searched = r.complement.empty() || !std::isnan(r.complement.front().angle_r);
  return searched ? Table::Cell(std::int64_t{r.active_planes()}) : kNan;
}

const std::vector<RotatedColumn>& rotated_columns() {
  using R = RotationResult;
  constexpr auto kRows = RowBuilder::kNeedsRows;
  static const std::vector<RotatedColumn> columns = {
      {"position_r", &R::position_r},
      {"r_q_a", &R::r_q_a},
      {"r_k_a", &R::r_k_a},
      {"alpha_q", &R::alpha_q},
      {"alpha_k", &R::alpha_k},
      {"mu_q_a", &R::mu_q_a},
      {"mu_k_a", &R::mu_k_a},
      {"mu_q_b", &R::mu_q_b},
      {"mu_k_b", &R::mu_k_b},
      {"bias_strength", &R::bias_strength},
      {"separation_strength", &R::separation_strength},
      {"var_frac_a", &R::var_frac_a},
      {"var_frac_b", &R::var_frac_b},
      {"plane_var_fraction", &R::plane_var_fraction},
      {"residual_pos_r", &R::residual_pos_r},
      {"content_var_b", &R::content_var_b},
      {"omega", &R::omega, kRows},
      {"omega_r_squared", &R::omega_r_squared, kRows},
      {"active_planes", active_planes, kRows, Type::integer},
      {"position_r_null", [](const R& r) { return r.null.position_r; }, kRows},
      {"r_q_a_null", [](const R& r) { return r.null.r_q_a; }, kRows},
      {"r_k_a_null", [](const R& r) { return r.null.r_k_a; }, kRows},
      {"position_r_p", [](const R& r) { return r.null.position_r_p; }, kRows},
      {"r_q_a_p", [](const R& r) { return r.null.r_q_a_p; }, kRows},
      {"r_k_a_p", [](const R& r) { return r.null.r_k_a_p; }, kRows}};
  return columns;
}

}  // namespace

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
  RowBuilder rows(run, "taxonomy",
                  head_columns({{"r_q", Type::real},
                                {"r_k", Type::real},
                                {"class", Type::text},
                                {"few_rows", Type::boolean},
                                {"r_q_axis", Type::real, RowBuilder::kNeedsRows},
                                {"r_k_axis", Type::real, RowBuilder::kNeedsRows},
                                {"class_axis", Type::text},
                                {"pc_position", Type::integer},
                                {"pc_position_variance", Type::real}}));
  for (const auto& head : run.heads) {
    if (!head.pca || head.pca->components.empty()) continue;
    const auto& pca = *head.pca;
    const auto& first = pca.components.front();
    const auto published = class_of(head, ClassBy::first_component, options.taxonomy);
    const auto on_axis = class_of(head, ClassBy::drift_axis, options.taxonomy);
    const int pc = position_component(pca);
    // In a head with a published class only the axis columns can be empty.
    const bool lacks_axis_only = published != HeadClass::undefined;
    rows.add(head_cells(run, head,
                        {first.q.r, first.k.r, to_string(published),
                         std::int64_t{has_few_rows(head) ? 1 : 0}, pca.r_q_axis, pca.r_k_axis,
                         to_string(on_axis), pc < 0 ? Table::Cell(kNan) : std::int64_t{pc},
                         pc < 0 ? kNan : pca.explained_variance[static_cast<std::size_t>(pc)]}),
             !lacks_axis_only ? undefined_reason(head)
             : run.texts < 2  ? "single_text"
                              : "no_drift_in_other_texts");
  }
  rows.finish(results);
  add_taxonomy_counts(run, options.taxonomy, results);
}

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

void add_rotated(const AnalysisRun& run, const AnalyzeOptions& options, ResultTables& results) {
  std::vector<RowBuilder::ColumnSpec> specs;
  for (const auto& column : rotated_columns())
    specs.push_back({column.name, column.type, column.needs});
  specs.push_back({"few_rows", Type::boolean});
  RowBuilder rows(run, "rotated", head_columns(std::move(specs)));
  for (const auto& head : run.heads) {
    if (!head.rotation) continue;
    std::vector<Table::Cell> cells;
    for (const auto& column : rotated_columns()) cells.push_back(column.of(*head.rotation));
    cells.emplace_back(std::int64_t{has_few_rows(head) ? 1 : 0});
    rows.add(head_cells(run, head, std::move(cells)),
             !head.rotation->undefined.empty()          ? head.rotation->undefined
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

void add_errors(const AnalysisRun& run, const std::vector<MeanError>& errors,
                ResultTables& results) {
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
  for (const auto& error : errors)
    rows.add({run.label, error.quantity, error.heads, error.mean, error.se, error.low, error.high,
              error.texts, error.n_heads},
             error.texts < 2 ? "single_text" : "too_few_rows");
  rows.finish(results);
}

}  // namespace qkscope
