#include "results/tables.h"

#include "results/row_builder.h"

namespace qkscope {
namespace {

using Type = Table::Type;
using Cells = std::vector<Table::Cell>;

constexpr HeadClass kClasses[] = {HeadClass::position_dominated, HeadClass::q_positional,
                                  HeadClass::k_positional, HeadClass::content_focused,
                                  HeadClass::mixed};

void add_qk(const AnalysisRun& run, ResultTables& results) {
  RowBuilder rows("qk", head_columns({{"pc", Type::integer},
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
                                      {"positional_variance_k", Type::real}}));
  for (const auto& head : run.heads) {
    if (!head.pca) continue;
    const PcaResult& pca = *head.pca;
    for (std::size_t i = 0; i < pca.components.size(); ++i) {
      const auto& c = pca.components[i];
      constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
      const auto first = [&](double value) { return i == 0 ? value : kNan; };
      rows.add(head_cells(run, head,
                          {static_cast<std::int64_t>(i), c.explained_variance, c.q.r, c.q.p, c.k.r,
                           c.k.p, c.q.log10_p, c.k.log10_p, first(pca.mu_q), first(pca.mu_k),
                           first(pca.slope_q), first(pca.slope_k), first(pca.fisher),
                           first(pca.positional_variance_q), first(pca.positional_variance_k)}),
               i == 0 ? undefined_reason(head) : "first_component_only");
    }
  }
  rows.finish(results);
}

void add_taxonomy(const AnalysisRun& run, const AnalyzeOptions& options, ResultTables& results) {
  RowBuilder heads("taxonomy",
                   head_columns({{"r_q", Type::real}, {"r_k", Type::real}, {"class", Type::text}}));
  struct Count {
    std::map<std::string, std::int64_t> of;
    std::int64_t total = 0;
  };
  std::map<std::string, Count> counts;
  for (const auto& head : run.heads) {
    if (!head.pca || head.pca->components.empty()) continue;
    const auto& first = head.pca->components.front();
    const std::string name = to_string(classify(first.q.r, first.k.r, options.taxonomy));
    heads.add(head_cells(run, head, {first.q.r, first.k.r, name}), undefined_reason(head));
    if (name.empty()) continue;
    for (const auto& group : {std::string("all"), to_string(head.rope)}) {
      ++counts[group].of[name];
      ++counts[group].total;
    }
  }
  heads.finish(results);
  RowBuilder rows("taxonomy_counts", {{"model", Type::text},
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

}  // namespace

std::vector<RowBuilder::ColumnSpec> head_columns(std::vector<RowBuilder::ColumnSpec> rest) {
  std::vector<RowBuilder::ColumnSpec> columns = {{"model", Type::text},   {"layer", Type::integer},
                                                 {"head", Type::integer}, {"k_head", Type::integer},
                                                 {"rope", Type::text},    {"n_q", Type::integer},
                                                 {"n_k", Type::integer}};
  columns.insert(columns.end(), rest.begin(), rest.end());
  return columns;
}

Cells head_cells(const AnalysisRun& run, const HeadReport& head, Cells rest) {
  Cells cells = {run.label,
                 std::int64_t{head.query.layer},
                 std::int64_t{head.query.head},
                 std::int64_t{head.k_head},
                 to_string(head.rope),
                 head.n_q,
                 head.n_k};
  cells.insert(cells.end(), std::make_move_iterator(rest.begin()),
               std::make_move_iterator(rest.end()));
  return cells;
}

std::string undefined_reason(const HeadReport& head) {
  if (head.n_q < 2 || head.n_k < 2) return "single_row";
  if (!head.positions_vary) return "constant_position";
  if (head.n_q < 4) return "too_few_rows";
  return "no_variance";
}

void add_pca_tables(const AnalysisRun& run, const AnalyzeOptions& options, ResultTables& results) {
  add_qk(run, results);
  add_taxonomy(run, options, results);
}

ResultTables result_tables(const AnalysisRun& run, const AnalyzeOptions& options) {
  ResultTables results;
  if (options.pca) add_pca_tables(run, options, results);
  if (options.rotation) add_rotation_tables(run, results);
  if (options.plasticity) add_plasticity_tables(run, results);
  if (options.scatter > 0 && (options.pca || options.rotation)) add_scatter_table(run, results);
  return results;
}

}  // namespace qkscope
