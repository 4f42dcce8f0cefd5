// Builds the result tables of the PCA, the rotation, the geometry and the errors.
#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/results/head_results.h"
#include "analysis/results/results_folder.h"
#include "base/core/numbers.h"
#include "base/numerics/sample_statistics.h"
#include "capture/stats_format/stats_file.h"

namespace qkscope {
namespace {

using Column = Table::Column;

// Maps each layer to its attention kind, as named by attention_name().
using AttentionOfLayer = std::map<std::int64_t, std::string>;

AttentionOfLayer attention_kind_by_layer(const Statistics& s) {
  AttentionOfLayer names;
  for (std::size_t i = 0; i < s.layers.size(); ++i)
    names[s.layers[i]] = attention_name(
        s.windows[i] > 0 ? std::optional(static_cast<std::int32_t>(s.windows[i])) : std::nullopt);
  return names;
}

// Keeps the rows of the chosen heads that cover all position buckets ("bucket" is null). Inserts
// the columns "model" in front and "attention" after "rope".
Table select_rows_of_heads(const Table& from, const AttentionOfLayer& attention,
                           const std::string& label,
                           const std::set<std::pair<std::int64_t, std::int64_t>>& heads) {
  std::vector<std::size_t> rows;
  const auto& layer = from.find("layer")->integers;
  const auto& head = from.find("head")->integers;
  const auto& bucket = from.find("bucket")->integers;
  for (std::size_t i = 0; i < bucket.size(); ++i)
    if (bucket[i] == Table::kNoInteger && heads.contains({layer[i], head[i]})) rows.push_back(i);
  std::vector<Column> columns = {
      {"model", Table::Type::text, {}, {}, std::vector<std::string>(rows.size(), label)}};
  for (const auto& column : from.columns()) {
    if (column.name == "bucket") continue;
    Column chosen{column.name, column.type, {}, {}, {}};
    for (const auto row : rows) {
      if (!column.integers.empty()) chosen.integers.push_back(column.integers[row]);
      if (!column.reals.empty()) chosen.reals.push_back(column.reals[row]);
      if (!column.texts.empty()) chosen.texts.push_back(column.texts[row]);
    }
    columns.push_back(std::move(chosen));
    if (column.name != "rope") continue;
    columns.push_back({"attention", Table::Type::text, {}, {}, {}});
    for (const auto row : rows) columns.back().texts.push_back(attention.at(layer[row]));
  }
  return Table(std::move(columns));
}

// Mean, standard deviation and range of every key channel, before and after RoPE.
Table key_channel_statistics(const Statistics& s, const AttentionOfLayer& attention,
                             const std::string& label, const std::set<int>& layers) {
  Table table = make_empty_result_table("key_channels");
  for (const auto stage : {VectorStage::pre, VectorStage::post})
    for (std::size_t i = 0; i < s.layers.size(); ++i) {
      const auto* found = s.find(VectorKind::key, stage, s.layers[i]);
      if (found == nullptr || !layers.contains(static_cast<int>(s.layers[i]))) continue;
      const HeadMoments m = all_rows(*found);
      for (std::int64_t place = 0; place < m.heads * m.dim; ++place) {
        const auto at = as_index(place);
        const auto head = place / m.dim;
        const auto channel = place % m.dim;
        const double square =
            m.m2[as_index(head * triangle_size(m.dim) + triangle_index(m.dim, channel, channel))];
        table.add(make_cells(
            label, s.layers[i], head, s.rotary[i] > 0 ? "rope" : "nope", attention.at(s.layers[i]),
            stage_name(stage), channel, m.mean[at],
            std::sqrt(square / static_cast<double>(std::max<std::int64_t>(1, m.n() - 1))),
            std::max(-m.min[at], m.max[at])));
      }
    }
  return table;
}

}  // namespace

void add_qk_pca_rows(const AnalysisRun& run, const HeadReport& head, ResultTableBuilder& rows) {
  if (!head.pca) return;
  const PcaResult& pca = *head.pca;
  for (std::size_t i = 0; i < pca.components.size(); ++i) {
    const auto& c = pca.components[i];
    const auto first = [&](double value) { return i == 0 ? value : kNan; };
    rows.add_row(
        head_cells(run, head, i, c.explained_variance, c.q.r, c.q.p, c.k.r, c.k.p, c.q.log10_p,
                   c.k.log10_p, first(pca.mu_q), first(pca.mu_k), first(pca.slope_q),
                   first(pca.slope_k), first(pca.fisher), first(pca.positional_variance_q),
                   first(pca.positional_variance_k), first(pca.qk_accuracy),
                   expected_abs_r_under_null(head.n_q), expected_abs_r_under_null(head.n_k)),
        i == 0 ? undefined_result_reason(head) : "first_component_only");
  }
}

void add_taxonomy_row(const AnalysisRun& run, const HeadReport& head, const AnalyzeOptions& options,
                      ResultTableBuilder& rows) {
  if (!head.pca || head.pca->components.empty()) return;
  const auto& pca = *head.pca;
  const auto& first = pca.components.front();
  const auto published = classify_head(head, HeadClassCriterion::first_component, options.taxonomy);
  const auto on_axis = classify_head(head, HeadClassCriterion::drift_axis, options.taxonomy);
  const int pc = position_component(pca);
  // If the head has a class by PC0 (the published method), only drift-axis columns can be empty.
  const bool lacks_axis_only = published != HeadClass::undefined;
  rows.add_row(
      head_cells(run, head, first.q.r, first.k.r, to_string(published), is_unreliable(head),
                 pca.r_q_axis, pca.r_k_axis, to_string(on_axis), pc < 0 ? Table::Cell(kNan) : pc,
                 pc < 0 ? kNan : pca.explained_variance[static_cast<std::size_t>(pc)]),
      !lacks_axis_only ? undefined_result_reason(head)
      : run.texts < 2  ? "single_text"
                       : "no_drift_in_other_texts");
}

void add_taxonomy_counts_table(const AnalysisRun& run, const AnalyzeOptions& options,
                               ResultTables& results) {
  ResultTableBuilder rows(run, "taxonomy_counts");
  const auto published =
      class_membership_measures(HeadClassCriterion::first_component, options.taxonomy);
  const auto on_axis = class_membership_measures(HeadClassCriterion::drift_axis, options.taxonomy);
  for (const char* group : kHeadGroups)
    for (std::size_t i = 0; i < published.size(); ++i) {
      const auto first = count_heads_of_class(run, published[i], group);
      const auto axis = count_heads_of_class(run, on_axis[i], group);
      if (first.of > 0)
        rows.add_row(make_cells(run.label, group, published[i].name, first.heads, first.fraction(),
                                axis.of > 0 ? Table::Cell(axis.heads) : kNan, axis.fraction()),
                     run.texts < 2 ? "single_text" : "no_drift_in_other_texts");
    }
  rows.move_table_to(results);
}

void add_correlation_rows(const AnalysisRun& run, const HeadReport& head,
                          ResultTableBuilder& rows) {
  const auto add = [&](int number, const char* kind, std::int64_t count,
                       const std::vector<SideComponent>& components) {
    for (std::size_t i = 0; i < components.size(); ++i)
      rows.add_row(
          make_cells(run.label, head.query.layer, number, kind, i, components[i].with_position.r,
                     components[i].with_position.p, components[i].explained_variance, count),
          undefined_result_reason(head));
  };
  add(head.query.head, "q", head.n_q, head.q_components);
  add(head.k_head, "k", head.n_k, head.k_components);
}

void add_rotation_row(const AnalysisRun& run, const HeadReport& head, const AnalyzeOptions& options,
                      ResultTableBuilder& rows) {
  if (!head.rotation) return;
  const RotationResult& r = *head.rotation;
  const bool searched = r.complement.empty() || !std::isnan(r.complement.front().angle_r);
  rows.add_row(
      head_cells(run, head, r.position_r, r.r_q_a, r.r_k_a, r.alpha_q, r.alpha_k, r.mu_q_a,
                 r.mu_k_a, r.mu_q_b, r.mu_k_b, r.bias_strength, r.separation_strength, r.var_frac_a,
                 r.var_frac_b, r.plane_var_fraction, r.residual_pos_r, r.content_var_b, r.omega,
                 r.omega_r_squared, searched ? Table::Cell(r.active_planes()) : kNan,
                 r.null.position_r, r.null.r_q_a, r.null.r_k_a, r.null.position_r_p, r.null.r_q_a_p,
                 r.null.r_k_a_p, is_unreliable(head)),
      !r.undefined.empty()                       ? r.undefined
      : options.rotation_options.null_draws == 0 ? "no_shuffles"
                                                 : undefined_result_reason(head));
}

void add_complement_rows(const AnalysisRun& run, const HeadReport& head, ResultTableBuilder& rows) {
  if (!head.rotation) return;
  for (std::size_t i = 0; i < head.rotation->complement.size(); ++i) {
    const auto& pair = head.rotation->complement[i];
    rows.add_row(head_cells(run, head, i, pair.variance_share, pair.variance_share_total,
                            pair.angle_r, pair.omega, pair.nearest_inv_freq, pair.separability,
                            std::isnan(pair.angle_r) ? Table::Cell(kNan) : pair.active),
                 std::isnan(pair.nearest_inv_freq) ? "rope_frequencies_unknown"
                                                   : undefined_result_reason(head));
  }
}

void add_geometry_tables(const AnalysisRun& run, ResultTables& results) {
  ResultTableBuilder rows(run, "geometry");
  std::map<std::string, const GeometryColumn*> by_name;  // NAME and NAME_se
  for (const auto& column : geometry_columns()) {
    rows.add_column(column.name);
    if (column.has_error) rows.add_column(column.name + "_se");
    by_name[column.name] = by_name[column.name + "_se"] = &column;
  }
  Table pairs = make_empty_result_table("pairs");
  for (const auto& head : run.heads) {
    if (!head.geometry) continue;
    auto cells = head_cells(run, head);
    for (const auto& column : geometry_columns()) {
      const auto found = head.geometry->columns.find(column.name);
      const bool known = found != head.geometry->columns.end();
      cells.emplace_back(known ? found->second.value : kNan);
      if (column.has_error) cells.emplace_back(known ? found->second.se : kNan);
    }
    rows.add_row(std::move(cells), [&](const std::string& name) {
      const auto& column = *by_name.at(name);
      return std::isnan(head.geometry->value(column.name))
                 ? missing_geometry_reason(column, run, head)
                 : "no_text_groups";
    });
    for (std::size_t p = 0; p < head.geometry->pairs.size(); ++p) {
      const auto& pair = head.geometry->pairs[p];
      pairs.add(head_cells(run, head, p, pair.inv_freq, pair.mean_abs_q, pair.mean_abs_k,
                           pair.concentration_q, pair.concentration_k, pair.frequency_use));
    }
  }
  rows.move_table_to(results);
  if (pairs.rows() > 0) results.tables.push_back({"pairs", std::move(pairs), false});
}

void add_errors_table(const AnalysisRun& run, const std::vector<MeanError>& errors,
                      ResultTables& results) {
  ResultTableBuilder rows(run, "errors");
  for (const auto& error : errors)
    rows.add_row(make_cells(run.label, error.quantity, error.heads, error.mean, error.se, error.low,
                            error.high, error.texts, error.n_heads),
                 error.texts < 2 ? "single_text" : "too_few_rows");
  rows.move_table_to(results);
}

std::vector<ResultTable> statistics_tables(const Statistics& s, const std::string& label,
                                           const std::vector<HeadId>& queries) {
  std::set<std::pair<std::int64_t, std::int64_t>> heads;
  std::set<int> layers;
  for (const auto& query : queries) {
    heads.insert({query.layer, query.head});
    layers.insert(query.layer);
  }
  const auto attention = attention_kind_by_layer(s);
  std::vector<ResultTable> tables;
  if (!s.attention.empty())
    tables.push_back(
        {"attention", select_rows_of_heads(attention_table(s), attention, label, heads)});
  if (!s.attention.empty() && s.settings.all_keys)
    tables.push_back({"distance", select_rows_of_heads(attention_by_distance_table(s), attention,
                                                       label, heads)});
  tables.push_back({"key_channels", key_channel_statistics(s, attention, label, layers)});
  return tables;
}

}  // namespace qkscope
