// Builds the tables of plasticity and of scatter plots, and lists all tables of a run.
#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "analysis/results/head_results.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "base/core/thread_pool.h"
#include "base/tables/empty_table.h"

namespace qkscope {

namespace embedded {
extern const char result_tables[];  // the file tables.txt
}

namespace {

constexpr char kNeedsRowsReason[] = "needs_rows";

void add_metrics_row(const AnalysisRun& run, const HeadReport& head, ResultTableBuilder& rows) {
  if (!head.plasticity) return;
  const PlasticityResult& p = *head.plasticity;
  const ResidualNormality& n = p.normality;
  const char* gaussian = !p.gaussian ? "" : *p.gaussian ? "yes" : "no";
  rows.add_row(
      make_cells(head.query.layer, head.query.head, head.k_head, head.n_q, head.n_k, head.dim,
                 p.r2_pos, p.beta_norm, p.r2_scalar, p.mae_baseline, p.mae_projection, p.mae_ratio,
                 n.first_skew, n.first_kurtosis, n.first_ks_p, n.median_abs_skew,
                 n.median_abs_kurtosis, n.median_ks_p, n.share_below_alpha, p.ap_overall, run.label,
                 to_string(head.rope), attention_name(head.window), p.ap_profile_overall,
                 p.ap_first20, p.ap_last20, p.ap_drop, head.query.head, p.ap_free_overall,
                 p.ap_free_first20, p.ap_free_last20, p.ap_free_drop, gaussian),
      undefined_result_reason(head));
}

void add_bucket_rows(const AnalysisRun& run, const HeadReport& head, ResultTableBuilder& rows) {
  if (!head.plasticity) return;
  for (const auto& cell : head.plasticity->table)
    rows.add_row(make_cells(head.query.layer, head.query.head, head.k_head, cell.q_bucket,
                            cell.k_bucket, cell.mean.ap, cell.mean.pairs, run.label,
                            to_string(head.rope), attention_name(head.window), cell.mean.eligible,
                            cell.mean.stderr_ap, head.query.head),
                 cell.mean.pairs == 0 ? "no_pairs" : "pairs_in_one_example");
}

// Returns why a profile value has no standard error, or "" if the value itself is NaN.
std::string missing_error_reason(const PlasticityResult& plasticity, double number) {
  if (std::isnan(number)) return "";
  const int groups = plasticity.profile_without.groups;
  return groups == 0 ? "no_errors_asked_for" : groups == 1 ? "single_text" : "needs_every_text";
}

void add_profile_rows(const AnalysisRun& run, const HeadReport& head, ResultTableBuilder& rows) {
  if (!head.plasticity) return;
  for (const auto& point : head.plasticity->profile)
    rows.add_row(
        head_cells(run, head, point.bin, point.low, point.high, point.position, point.queries,
                   point.mean.ap, point.mean.pairs, point.mean.stderr_ap, point.mean.eligible,
                   point.se, point.ap_free, point.free_pairs, point.se_free),
        point.mean.pairs > 0 ? "pairs_in_one_example"
        : point.queries < 2  ? "single_query"
                             : "no_pairs",
        missing_error_reason(*head.plasticity, point.mean.ap));
}

void add_profile_bin_rows(const AnalysisRun& run, const HeadReport& head,
                          ResultTableBuilder& rows) {
  if (!head.plasticity) return;
  for (const auto& mean : head.plasticity->profile_bin_means)
    rows.add_row(head_cells(run, head, to_string(mean.kind), mean.bin, mean.low, mean.high, mean.ap,
                            mean.bins, mean.se),
                 "no_bins", missing_error_reason(*head.plasticity, mean.ap));
}

void add_heatmap_rows(const AnalysisRun& run, const HeadReport& head, ResultTableBuilder& rows) {
  if (!head.plasticity) return;
  for (const auto& cell : head.plasticity->heatmap)
    rows.add_row(head_cells(run, head, cell.key_distance_low, cell.key_distance_high,
                            cell.query_distance_low, cell.query_distance_high, cell.ap, cell.pairs,
                            cell.eligible),
                 "no_pairs");
}

void add_component_weight_rows(const AnalysisRun& run, const HeadReport& head,
                               ResultTableBuilder& rows) {
  if (!head.plasticity) return;
  for (std::size_t i = 0; i < head.plasticity->component_r2.size(); ++i)
    rows.add_row(
        make_cells(head.query.layer, head.query.head, head.k_head, i,
                   head.plasticity->component_r2[i], head.plasticity->component_weight[i],
                   run.label, to_string(head.rope), attention_name(head.window), head.query.head),
        undefined_result_reason(head));
}

std::string query_or_key_letter(const ScatterPoint& point) {
  return point.side == HeadKind::query ? "q" : "k";
}

// Adds head_scatter, with one column per principal component: at least PC0 and PC1, NaN if missing.
void add_scatter_table(const AnalysisRun& run, const AnalyzeOptions& options,
                       ResultTables& results) {
  bool tokens = false;
  for (const auto& head : run.heads)
    for (const auto& p : head.scatter) tokens = tokens || !p.token.empty();
  const auto components =
      static_cast<std::size_t>(options.pca ? std::max(2, options.pca_options.components) : 2);
  Table table = make_empty_result_table("head_scatter");
  for (std::size_t i = 0; i < components; ++i)
    table.column(fmt::format("pc{}", i), Table::Type::real);
  for (const char* axis : {"a", "b", "c0", "c1"}) table.column(axis, Table::Type::real);
  if (tokens) table.column("token", Table::Type::text);
  for (const auto& head : run.heads)
    for (const auto& p : head.scatter) {
      auto cells = head_cells(run, head, query_or_key_letter(p), p.position);
      for (std::size_t i = 0; i < components; ++i)
        cells.emplace_back(i < p.pc.size() ? p.pc[i] : kNan);
      for (const double x : {p.a, p.b, p.c0, p.c1}) cells.emplace_back(x);
      if (tokens) cells.emplace_back(p.token);
      table.add(std::move(cells));
    }
  results.tables.push_back({"head_scatter", std::move(table), false});
}

// Adds head_planes: for heads in planes_of, coordinates in the planes orthogonal to axes a and b.
void add_planes_table(const AnalysisRun& run, ResultTables& results) {
  Table table = make_empty_result_table("head_planes");
  for (const auto& head : run.heads)
    for (const auto& p : head.scatter)
      for (std::size_t i = 0; 2 * i + 1 < p.planes.size(); ++i)
        table.add(head_cells(run, head, query_or_key_letter(p), p.position, i, p.planes[2 * i],
                             p.planes[2 * i + 1]));
  results.tables.push_back({"head_planes", std::move(table), false});
}

using TableAdder = std::function<void(const AnalysisRun&, ResultTables&)>;
using RowAdder = std::function<void(const AnalysisRun&, const HeadReport&, ResultTableBuilder&)>;

TableAdder head_table_adder(const char* name, const RowAdder& add) {
  return [=](const AnalysisRun& run, ResultTables& results) {
    ResultTableBuilder rows(run, name);
    for (const auto& head : run.heads) add(run, head, rows);
    rows.move_table_to(results);
  };
}

std::vector<TableAdder> table_adders(const AnalysisRun& run, const AnalyzeOptions& options) {
  const auto with_options = [&](auto add) {
    return [&options, add](const AnalysisRun& of, ResultTables& to) { add(of, options, to); };
  };
  const auto row_with_options = [&](auto add) {
    return [&options, add](const AnalysisRun& of, const HeadReport& head, ResultTableBuilder& to) {
      add(of, head, options, to);
    };
  };
  std::vector<TableAdder> list;
  const auto append = [&](std::initializer_list<TableAdder> more) {
    list.insert(list.end(), more.begin(), more.end());
  };
  if (options.pca)
    append({head_table_adder("qk", add_qk_pca_rows),
            head_table_adder("taxonomy", row_with_options(add_taxonomy_row)),
            with_options(add_taxonomy_counts_table)});
  if (options.pca && options.pca_options.separate_components > 0)
    append({head_table_adder("correlations", add_correlation_rows)});
  if (options.rotation)
    append({head_table_adder("rotated", row_with_options(add_rotation_row)),
            head_table_adder("complement", add_complement_rows)});
  if (options.plasticity)
    append({head_table_adder("head_metrics", add_metrics_row),
            head_table_adder("head_bucket_plasticity", add_bucket_rows),
            head_table_adder("head_profile", add_profile_rows),
            head_table_adder("profile_bins", add_profile_bin_rows),
            head_table_adder("pair_heatmap", add_heatmap_rows),
            head_table_adder("head_component_weights", add_component_weight_rows)});
  if (options.geometry) append({add_geometry_tables});
  if (options.errors && !run.from_sums)
    append({[](const AnalysisRun& of, ResultTables& to) { add_errors_table(of, of.errors, to); }});
  if (options.scatter > 0 && !run.from_sums && (options.pca || options.rotation))
    append({with_options(add_scatter_table)});
  if (!options.planes_of.empty()) append({add_planes_table});
  return list;
}

}  // namespace

const std::map<std::string, std::string>& result_table_schemas() {
  static const std::map<std::string, std::string> kSchemas = [] {
    std::map<std::string, std::string> schemas;
    std::string name;
    for (const auto& line : split(embedded::result_tables, '\n')) {
      if (line.empty() || line.starts_with('#')) continue;
      const auto colon = line.starts_with(' ') ? std::string::npos : line.find(':');
      if (colon != std::string::npos) name = line.substr(0, colon);
      schemas[name] += line.substr(colon + 1);  // npos + 1 is 0
    }
    const auto head = schemas.extract("HEAD").mapped();
    for (auto& [table, schema] : schemas)
      if (schema.starts_with(" HEAD")) schema.replace(0, 5, head);
    return schemas;
  }();
  return kSchemas;
}

Table make_empty_result_table(const std::string& name) {
  auto schema = result_table_schemas().at(name);
  for (const std::string mark : {":rows", ":keys"})
    for (auto at = schema.find(mark); at != std::string::npos; at = schema.find(mark))
      schema.erase(at, mark.size());
  return empty_table(schema);
}

ResultTableBuilder::ResultTableBuilder(const AnalysisRun& run, std::string name)
    : run_(run), name_(std::move(name)), table_(make_empty_result_table(name_)) {
  for (const auto& column : split(result_table_schemas().at(name_), ','))
    lacks_input_.push_back((column.ends_with(":rows") && run.from_sums) ||
                           (column.ends_with(":keys") && !run.compares_keys));
}

void ResultTableBuilder::add_column(const std::string& column) {
  table_.column(column, Table::Type::real);
  lacks_input_.push_back(false);
}

void ResultTableBuilder::add_row(std::vector<Table::Cell> cells, const std::string& reason,
                                 const std::string& no_error) {
  add_row(std::move(cells), [&](const std::string& column) {
    return column.starts_with("se") && !no_error.empty() ? no_error : reason;
  });
}

void ResultTableBuilder::add_row(std::vector<Table::Cell> cells,
                                 const MissingReasonFunction& reason) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto* number = std::get_if<double>(&cells[i]);
    if (number == nullptr || !std::isnan(*number)) continue;
    const std::string& name = table_.columns()[i].name;
    ++undefined_[name][lacks_input_[i] ? kNeedsRowsReason : reason(name)];
  }
  table_.add(std::move(cells));
}

void ResultTableBuilder::move_table_to(ResultTables& results) {
  // If a table is empty because its input is missing, count every head under the reason needs_rows.
  for (std::size_t i = 0; i < lacks_input_.size(); ++i)
    if (lacks_input_[i] && table_.rows() == 0)
      undefined_[table_.columns()[i].name][kNeedsRowsReason] = static_cast<int>(run_.heads.size());
  if (!undefined_.empty()) results.undefined[name_ + ".csv"] = std::move(undefined_);
  results.tables.push_back({std::move(name_), std::move(table_)});
}

std::string undefined_result_reason(const HeadReport& head) {
  if (head.n_q < 2 || head.n_k < 2) return "single_row";
  if (!head.positions_vary) return "constant_position";
  if (head.n_q < 4) return "too_few_rows";
  return "no_variance";
}

ResultTables result_tables(const AnalysisRun& run, const AnalyzeOptions& options) {
  return translate_exceptions([&] {
    const auto list = table_adders(run, options);
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
