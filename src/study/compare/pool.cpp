// Implements pool_results(): statistics over the heads of several analyses.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "analysis/results/results_folder.h"
#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/numerics/sample_statistics.h"
#include "base/tables/csv.h"
#include "base/tables/empty_table.h"
#include "qkscope/experimental/study.h"
#include "study/compare/run_tables.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

struct PooledHead {
  std::string model;                     // label of the run
  std::string rope;                      // "rope", "nope" or "unknown"
  std::string attention = "full";        // or "sliding"
  double depth = 0;                      // layer / last layer with a head of the run
  std::map<std::string, double> values;  // value by metric; no NaN

  // Returns the value of a metric, or NaN if the head lacks it.
  double metric_value(const std::string& name) const { return map_value_or(values, name, kNan); }
};

// Access to one row of a table by column name; NaN and "" for a missing column.
struct TableRow {
  const Table& table;
  std::size_t row;

  double number_at(const std::string& column) const {
    const auto* found = table.find(column);
    return found == nullptr || found->type == Table::Type::text ? kNan : found->number(row);
  }
  std::string text_at(const std::string& column) const {
    const auto* found = table.find(column);
    return found == nullptr || found->type != Table::Type::text ? "" : found->texts[row];
  }
};

// Sets a metric of the head, unless the value is NaN or infinite.
void set_head_value(PooledHead& head, const std::string& metric, double value) {
  if (std::isfinite(value)) head.values[metric] = value;
}

// Returns 1 for a positive value, NaN for NaN, else 0: the mean is the fraction of positive heads.
double positive_indicator(double value) {
  return std::isnan(value) ? kNan : value > 0 ? 1 : 0;
}

void set_pca_values(const TableRow& row, PooledHead& head) {
  const auto pc = static_cast<int>(row.number_at("pc"));
  for (const char* name : {"r_q", "r_k", "explained_variance"})
    set_head_value(head, fmt::format("{}_pc{}", name, pc), row.number_at(name));
  if (pc != 0) return;
  set_head_value(head, "abs_r_k", std::fabs(row.number_at("r_k")));
  set_head_value(head, "abs_mu_q_pc0", std::fabs(row.number_at("mu_q")));
  set_head_value(head, "qk_distance_pc0", std::fabs(row.number_at("mu_q") - row.number_at("mu_k")));
  for (const char* name : {"fisher", "positional_variance_q", "positional_variance_k"})
    set_head_value(head, name, row.number_at(name));
  set_head_value(head, "linear_accuracy_pc0_pc1", row.number_at("qk_accuracy"));
}

void set_head_class(const TableRow& row, PooledHead& head) {
  for (const std::string suffix : {"", "_axis"})
    if (const auto found = row.text_at("class" + suffix); !found.empty())
      for (const char* name :
           {"position_dominated", "q_positional", "k_positional", "content_focused", "mixed"})
        set_head_value(head, name + suffix, found == name ? 1 : 0);
}

void set_rotation_values(const TableRow& row, PooledHead& head) {
  set_head_value(head, "slope_ratio",
                 std::fabs(row.number_at("alpha_k") / row.number_at("alpha_q")));
  set_head_value(head, "share_positive_bias", positive_indicator(row.number_at("bias_strength")));
  set_head_value(head, "share_positive_mu_q_a", positive_indicator(row.number_at("mu_q_a")));
  set_head_value(head, "share_var_b_above_a",
                 positive_indicator(row.number_at("var_frac_b") - row.number_at("var_frac_a")));
}

void add_active_variance(const TableRow& row, PooledHead& head) {
  const double active = row.number_at("active");
  if (std::isnan(active)) return;
  auto& sum = head.values["active_variance"];
  if (active == 1) sum += row.number_at("variance_share");
}

// Head metrics in a results table. `columns` lists columns that are metrics ("|alpha_k|" stands for
// the absolute value, abs_alpha_k); `add` computes further metrics from a row.
struct HeadTableSpec {
  const char* name;
  std::string columns;
  void (*add)(const TableRow& row, PooledHead& head) = nullptr;
};
std::vector<HeadTableSpec> head_table_specs() {
  return {
      {"qk", "", set_pca_values},
      {"taxonomy", "|r_q_axis| |r_k_axis| pc_position pc_position_variance", set_head_class},
      {"rotated",
       "position_r r_q_a |r_q_a| r_k_a |r_k_a| alpha_q |alpha_q| alpha_k |alpha_k| mu_q_a mu_k_a "
       "bias_strength separation_strength var_frac_a var_frac_b plane_var_fraction residual_pos_r "
       "content_var_b active_planes position_r_null r_q_a_null r_k_a_null",
       set_rotation_values},
      {"complement", "", add_active_variance},
      {"head_metrics", "ap_overall ap_profile_overall ap_first20 ap_last20 ap_drop q_R2_pos"},
      {"geometry",
       fmt::format("{}", fmt::join(to_vector(geometry_columns(), &GeometryColumn::name), " "))}};
}

void read_head_table(const std::string& file, const HeadTableSpec& source,
                     std::map<std::pair<std::int64_t, std::int64_t>, PooledHead>& heads) {
  const Table table = read_parquet_table_with_gaps(file);
  for (std::size_t i = 0; i < static_cast<std::size_t>(table.rows()); ++i) {
    const TableRow row{table, i};
    const double head = row.number_at(table.find("head") != nullptr ? "head" : "q_head");
    auto& pooled =
        heads[{static_cast<std::int64_t>(row.number_at("layer")), static_cast<std::int64_t>(head)}];
    if (const auto rope = row.text_at("rope"); !rope.empty()) pooled.rope = rope;
    if (row.text_at("attention").starts_with("sliding")) pooled.attention = "sliding";
    for (auto column : split(source.columns, ' ')) {
      const bool absolute = column.starts_with('|');
      if (absolute) column = column.substr(1, column.size() - 2);
      const double value = row.number_at(column);
      set_head_value(pooled, (absolute ? "abs_" : "") + column,
                     absolute ? std::fabs(value) : value);
    }
    if (source.add != nullptr) source.add(row, pooled);
  }
}

// Reads all heads of the runs and their table metrics, sorted by run, layer and head.
std::vector<PooledHead> read_pooled_heads(const std::vector<AnalyzedRunFolder>& runs) {
  std::vector<PooledHead> all;
  std::set<std::string> labels;
  for (const auto& run : runs) {
    if (!labels.insert(run.label).second)
      reject("{}: there is another run named {}; give each its own --label", run.folder, run.label);
    std::map<std::pair<std::int64_t, std::int64_t>, PooledHead> heads;
    for (const auto& source : head_table_specs()) {
      const auto file = run.folder + "/" + source.name + ".parquet";
      if (path_exists(file)) read_head_table(file, source, heads);
    }
    if (heads.empty()) reject("{}: there are no tables of heads here", run.folder);
    const auto last = std::max<std::int64_t>(1, heads.rbegin()->first.first);
    for (auto& [place, head] : heads) {
      head.model = run.label;
      head.depth = static_cast<double>(place.first) / static_cast<double>(last);
      all.push_back(std::move(head));
    }
  }
  return all;
}

std::vector<std::string> head_metric_names(const std::vector<PooledHead>& heads) {
  std::set<std::string> names;
  for (const auto& head : heads)
    for (const auto& [name, value] : head.values) names.insert(name);
  return {names.begin(), names.end()};
}

using Heads = std::vector<const PooledHead*>;

constexpr char kAll[] = "all";

std::vector<double> metric_values(const Heads& heads, const std::string& name) {
  std::vector<double> values;
  for (const auto* head : heads)
    if (const double value = head->metric_value(name); !std::isnan(value)) values.push_back(value);
  return values;
}

// Returns "all", followed by the label of each run.
std::vector<std::string> model_names(const std::vector<PooledHead>& heads) {
  std::vector<std::string> models = {kAll};
  for (const auto& head : heads)
    if (models.back() != head.model) models.push_back(head.model);
  return models;
}

Heads select_heads(const std::vector<PooledHead>& heads, const std::string& model,
                   const std::string& layers = kAll) {
  Heads chosen;
  for (const auto& head : heads)
    if ((model == kAll || head.model == model) &&
        (layers == kAll || layers == head.rope || layers == head.attention))
      chosen.push_back(&head);
  return chosen;
}

Table pooled_statistics_table(const std::vector<PooledHead>& heads) {
  Table table = empty_table(
      "text model, text heads, text quantity, integer n_heads, real mean, real median, real std, "
      "real min, real max");
  for (const auto& model : model_names(heads))
    for (const char* layers : {kAll, "rope", "nope", "full", "sliding"}) {
      const auto chosen = select_heads(heads, model, layers);
      for (const auto& metric : head_metric_names(heads)) {
        const auto values = metric_values(chosen, metric);
        if (values.empty()) continue;
        const auto [least, most] = std::ranges::minmax(values);
        table.add({model, std::string(layers), metric, std::ssize(values), mean_of(values),
                   quantile_of(values, 0.5), standard_deviation_of(values), least, most});
      }
    }
  return table;
}

Table make_depth_table(const std::vector<PooledHead>& heads, int bins) {
  Table table = empty_table(
      "text model, text quantity, integer bin, real depth_low, real depth_high, integer n_heads, "
      "real mean, real median");
  for (const auto& model : model_names(heads)) {
    std::vector<Heads> at(as_index(bins));
    for (const auto* head : select_heads(heads, model))
      at[as_index(std::min(static_cast<int>(head->depth * bins), bins - 1))].push_back(head);
    for (const auto& metric : head_metric_names(heads))
      for (int bin = 0; bin < bins; ++bin) {
        const auto values = metric_values(at[as_index(bin)], metric);
        if (!values.empty())
          table.add({model, metric, std::int64_t{bin}, static_cast<double>(bin) / bins,
                     (bin + 1.0) / bins, std::ssize(values), mean_of(values),
                     quantile_of(values, 0.5)});
      }
  }
  return table;
}

constexpr char kCorrelations[] = ", real pearson, real pearson_p, real spearman, real spearman_p";

void add_correlation_row(Table& table, std::vector<Table::Cell> cells,
                         const CorrelationCoefficients& found) {
  cells.insert(cells.end(),
               {found.n, found.pearson.r, found.pearson.p, found.spearman.r, found.spearman.p});
  table.add(std::move(cells));
}

Table correlation_table(const std::vector<PooledHead>& heads,
                        const std::vector<std::pair<std::string, std::string>>& pairs) {
  Table table =
      empty_table(std::string("text model, text x, text y, integer n_heads") + kCorrelations);
  for (const auto& [x, y] : pairs)
    for (const auto& model : model_names(heads)) {
      const auto chosen = select_heads(heads, model);
      const auto values = [&](const std::string& metric) {
        return to_vector(chosen, [&](const auto* head) { return head->metric_value(metric); });
      };
      add_correlation_row(table, {model, x, y}, correlate_pairs(values(x), values(y)));
    }
  return table;
}

Table score_correlation_table(const std::vector<AnalyzedRunFolder>& folders,
                              const PoolOptions& options) {
  const auto runs = to_vector(folders, [](const AnalyzedRunFolder& run) {
    return make_overview_row(run.folder, run.label);
  });
  const auto labels = to_vector(folders, &AnalyzedRunFolder::label);
  Table table =
      empty_table(std::string("text score, text measure, integer n_models") + kCorrelations);
  const auto scores = read_benchmark_results(options.scores, options.by);
  std::set<std::string> scored;
  for (const auto& score : scores)
    for (const auto& [model, value] : score.models) scored.insert(model);
  if (std::ranges::none_of(labels, [&](const auto& label) { return scored.contains(label); }))
    reject("{}: no run has a name of column {}; runs are {}, the file has {}", options.scores,
           quote_text(options.by), fmt::join(labels, ", "), fmt::join(scored, ", "));
  for (const auto& score : scores)
    for (const auto& measure : overview_measures()) {
      std::vector<double> of_runs, of_score;
      for (const auto& run : runs) {
        of_runs.push_back(run.value(measure));
        of_score.push_back(map_value_or(score.models, run.label, kNan));
      }
      const auto found = correlate_pairs(of_runs, of_score);
      if (found.n > 0) add_correlation_row(table, {score.name, measure}, found);
    }
  return table;
}

}  // namespace

std::vector<BenchmarkScore> read_benchmark_results(const std::string& file, const std::string& by) {
  const auto header = read_csv_header(file);
  const auto has = [&](const std::string& name) { return std::ranges::count(header, name) > 0; };
  if (!has(by))
    reject("{}: there is no column {} with the names of models; it has {}", file, quote_text(by),
           fmt::join(header, ", "));
  const Table table = read_csv_text_columns(file);
  const auto& models = table.find(by)->texts;
  std::vector<BenchmarkScore> scores;  // in the order of the file
  const auto add = [&](const std::string& name, std::size_t row, const std::string& field) {
    const double value = parse_double_or_nan(field);
    if (models[row].empty() || std::isnan(value)) return;
    auto found = std::ranges::find(scores, name, &BenchmarkScore::name);
    if (found == scores.end()) found = scores.insert(scores.end(), {name, {}});
    if (!found->models.emplace(models[row], value).second)
      reject("{}: row {}: {} of {} is there twice", file, row + 2, name, models[row]);
  };
  const bool is_long = has("metric") && has("value");
  for (std::size_t row = 0; row < models.size(); ++row) {
    std::vector<std::string> name;
    for (const auto& column : table.columns())
      if (!is_long && column.name != by) add(column.name, row, column.texts[row]);
    for (const char* part : {"benchmark", "mode", "length_tokens", "metric"})
      if (const auto* column = table.find(part); column && !column->texts[row].empty())
        name.push_back(column->texts[row]);
    if (is_long)
      add(fmt::format("{}", fmt::join(name, " / ")), row, table.find("value")->texts[row]);
  }
  if (scores.empty()) reject("{}: holds no score of a model", file);
  return scores;
}

PooledTables pool_results(const PoolOptions& options) {
  return translate_exceptions([&] {
    if (options.results.empty()) reject("pool: no results are named");
    if (options.depth_bins < 1) reject("pool: {} bins of depth", options.depth_bins);
    std::vector<AnalyzedRunFolder> runs;
    for (const auto& folder : options.results) {
      const auto found = find_run_folders(folder);
      runs.insert(runs.end(), found.begin(), found.end());
    }
    const auto heads = read_pooled_heads(runs);
    const auto known = head_metric_names(heads);
    for (const auto& [x, y] : options.pairs)
      for (const auto& name : {x, y}) {
        if (std::ranges::count(known, name) > 0) continue;
        const auto near = closest_spelling(name, known);
        reject("pool: {} is not a number of these heads{}; there are {}", quote_text(name),
               near.empty() ? "" : fmt::format(", is {} meant?", near), fmt::join(known, ", "));
      }
    PooledTables tables;
    tables.pooled = pooled_statistics_table(heads);
    tables.depth = make_depth_table(heads, options.depth_bins);
    tables.correlations = correlation_table(heads, options.pairs);
    if (!options.scores.empty()) tables.scores = score_correlation_table(runs, options);
    return tables;
  });
}

}  // namespace qkscope
