// The overview of a sweep (means over the heads of each run), and the error from sampling rows.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/core/numbers.h"
#include "base/core/project.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/tables/empty_table.h"
#include "qkscope/tables.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

// A measure of the overview and its location in summary.json.
struct OverviewMeasure {
  std::string name;     // column of overview.csv
  std::string section;  // section of summary.json
  std::string key;      // key in the section
  std::string field;    // "mean", "median" or "fraction"
};

// The overview calls the explained variance of the first component pc0_variance.
constexpr char kFirstVariance[] = "pc0_variance";

// Returns the measures of overview.csv in the order of its columns.
std::vector<OverviewMeasure> summary_measures() {
  std::vector<OverviewMeasure> all;
  const auto add = [&](const std::string& section, const std::string& field,
                       const std::vector<std::string>& names, const std::string& suffix = "") {
    for (const auto& name : names)
      all.push_back(
          {name + suffix, section, name == kFirstVariance ? "explained_variance" : name, field});
  };
  const std::vector<std::string> classes = {"position_dominated", "q_positional", "k_positional",
                                            "content_focused", "mixed"};
  add("pca", "mean", {"r_q", "r_k", "abs_r_k", "pc0_variance"});
  add("taxonomy", "fraction", classes);
  add("pca", "mean", {"abs_r_q_axis", "abs_r_k_axis"});
  add("taxonomy_axis", "fraction", classes, "_axis");
  add("pca", "mean", {"qk_accuracy"});
  add("rotation", "mean",
      {"bias_strength", "share_positive_bias", "share_positive_mu_q_a", "alpha_k", "abs_alpha_k"});
  add("rotation", "median", {"slope_ratio_median", "signed_slope_ratio_median"});
  add("rotation", "mean",
      {"r_q_a", "abs_r_q_a", "abs_r_q_a_null", "r_k_a", "abs_r_k_a", "abs_r_k_a_null",
       "separation_strength", "plane_var_fraction", "share_var_b_above_a", "active_planes",
       "active_variance"});
  add("plasticity", "mean",
      {"ap_profile_overall", "ap_first20", "ap_last20", "ap_drop", "ap_free_overall",
       "ap_free_first20", "ap_free_last20", "ap_free_drop"});
  add("geometry", "mean",
      {"rank_entropy_q_post", "rank_entropy_k_post", "logit_rank_90", "concentration_q",
       "concentration_k", "frequency_use_slow", "decay_exponent", "distance_share", "key_share",
       "query_share", "symbolic_score", "positional_score", "sink_fraction"});
  return all;
}

// Suffixes of the overview columns that belong to one measure.
constexpr char kErrorSuffix[] = "_se";     // standard error over texts
constexpr char kExactSuffix[] = "_exact";  // value over every token

std::int64_t count_heads(const Json& summary, const std::string& layers) {
  const Json& counts = summary.at("counts");
  if (layers == "all") return counts.at("analysed").get<std::int64_t>();
  return counts.value(layers, std::int64_t{0});  // older summaries have no count by attention
}

// `exact` is the summary of the statistics over every token; null if the run has no statistics.
OverviewRow parse_overview_row(const Json& summary, const Json& exact, const RunEntry& run,
                               const std::string& layers) {
  OverviewRow row{run.label, run.phase, run.order, layers, count_heads(summary, layers), {}};
  const Json empty = Json::object();
  for (const auto& measure : summary_measures()) {
    const auto read = [&](const Json& from, const std::string& field, const std::string& suffix) {
      const auto number = from.value(measure.section, empty)
                              .value(layers, empty)
                              .value(measure.key, empty)
                              .value(field, Json());
      if (number.is_number()) row.values[measure.name + suffix] = number.get<double>();
    };
    read(summary, measure.field, "");
    read(summary, "se", kErrorSuffix);
    if (exact.is_object()) read(exact, measure.field, kExactSuffix);
  }
  return row;
}

// Returns a row for all layers, then one per layer kind that covers only part of the heads.
std::vector<OverviewRow> read_overview_rows(const std::string& results, const RunEntry& run) {
  const auto file = results + "/summary.json";
  const auto exact_file = results + "/exact/summary.json";
  const Json summary = load_json(file);
  const Json exact = path_exists(exact_file) ? load_json(exact_file) : Json();
  try {
    std::vector<OverviewRow> rows = {parse_overview_row(summary, exact, run, "all")};
    for (const auto* layers : {"rope", "nope", "unknown", "full", "sliding"})
      if (const auto heads = count_heads(summary, layers); heads > 0 && heads < rows[0].heads)
        rows.push_back(parse_overview_row(summary, exact, run, layers));
    return rows;
  } catch (const Json::exception& error) {
    reject("{}: not a summary as an analysis writes it: {}", file, error.what());
  }
}

template <typename T>
using ValueByHead = std::map<std::pair<std::int64_t, std::int64_t>, T>;  // value by layer and head

// Reads a column of numbers (T = double) or texts (T = std::string); empty if there is no such
// table or column. Tables with several principal components are filtered to PC0.
template <typename T>
ValueByHead<T> read_column_by_head(const std::string& folder, const char* table_name,
                                   const char* column) {
  const auto file = folder + "/" + table_name + ".parquet";
  const Table table = path_exists(file) ? read_parquet_table_with_gaps(file) : Table();
  const auto* wanted = table.find(column);
  if (wanted == nullptr) return {};
  const auto* layer = table.find("layer");
  const auto* head = table.find("head") != nullptr ? table.find("head") : table.find("q_head");
  const auto* component = table.find("pc");
  ValueByHead<T> values;
  for (std::size_t row = 0; row < as_index(table.rows()); ++row) {
    if (component != nullptr && component->integers[row] != 0) continue;
    auto& value = values[{layer->integers[row], head->integers[row]}];
    if constexpr (std::is_same_v<T, double>)
      value = wanted->number(row);
    else
      value = wanted->texts[row];
  }
  return values;
}

// Calls add(sampled value, exact value) for every head that both analyses have.
template <typename T, typename Add>
void for_each_common_head(const ValueByHead<T>& sampled, const ValueByHead<T>& exact, Add add) {
  for (const auto& [head, value] : sampled)
    if (const auto found = exact.find(head); found != exact.end()) add(value, found->second);
}

void add_sampling_error_row(Table& table, const RunEntry& run, const std::string& column,
                            const ValueByHead<double>& sampled, const ValueByHead<double>& exact) {
  std::int64_t heads = 0;
  double sum_sampled = 0;
  double sum_exact = 0;
  double squares = 0;
  double largest = 0;
  for_each_common_head(sampled, exact, [&](double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return;
    ++heads;
    sum_sampled += a;
    sum_exact += b;
    squares += (a - b) * (a - b);
    largest = std::max(largest, std::fabs(a - b));
  });
  if (heads == 0) return;
  const auto n = static_cast<double>(heads);
  table.add({run.label, run.phase, run.order,
             column == "explained_variance" ? kFirstVariance : column, heads, sum_sampled / n,
             sum_exact / n, (sum_sampled - sum_exact) / n, std::sqrt(squares / n), largest});
}

// Adds the fraction of heads whose sampled and exact classes differ, in the column `difference`.
void add_class_differences(Table& table, const RunEntry& run,
                           const ValueByHead<std::string>& sampled,
                           const ValueByHead<std::string>& exact) {
  std::int64_t heads = 0;
  std::int64_t changed = 0;
  for_each_common_head(sampled, exact, [&](const std::string& a, const std::string& b) {
    if (a.empty() || b.empty()) return;
    ++heads;
    changed += a != b ? 1 : 0;
  });
  if (heads > 0)
    table.add({run.label, run.phase, run.order, std::string("class_changed"), heads, kNan, kNan,
               static_cast<double>(changed) / static_cast<double>(heads), kNan, kNan});
}

}  // namespace

const std::vector<std::string>& overview_measures() {
  static const auto names = to_vector(summary_measures(), &OverviewMeasure::name);
  return names;
}

double OverviewRow::value(const std::string& measure) const {
  return map_value_or(values, measure, kNan);
}

OverviewRow make_overview_row(const std::string& folder, const std::string& label) {
  RunEntry run;
  run.label = label;
  return read_overview_rows(folder, run).front();
}

std::vector<OverviewRow> make_overview_rows(const SweepFolder& folder,
                                            const std::vector<RunEntry>& runs) {
  std::vector<OverviewRow> all;
  for (const auto& run : runs) {
    if (run.state != RunState::done) continue;
    const auto rows = read_overview_rows(folder.results_folder(run.label), run);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

std::vector<OverviewRow> read_overview(const std::string& sweep_folder) {
  return translate_exceptions([&] {
    const SweepFolder folder(sweep_folder);
    return make_overview_rows(folder, read_sweep_index(folder).runs);
  });
}

Table make_overview_table(const SweepFolder& folder, const std::vector<RunEntry>& runs) {
  const auto rows = make_overview_rows(folder, runs);
  std::set<std::string> present;  // measures that some run has
  for (const auto& row : rows)
    for (const auto& [name, value] : row.values) present.insert(name);
  std::vector<std::string> columns;
  for (const auto& name : overview_measures()) {
    columns.insert(columns.end(), {name, name + kErrorSuffix});
    if (present.contains(name + kExactSuffix)) columns.push_back(name + kExactSuffix);
  }
  Table table = empty_table("text model, text phase, integer order, text layers, integer heads");
  for (const auto& name : columns) table.column(name, Table::Type::real);
  for (const auto& row : rows) {
    std::vector<Table::Cell> cells = {row.label, row.phase, row.order, row.layers, row.heads};
    for (const auto& name : columns) cells.emplace_back(row.value(name));
    table.add(std::move(cells));
  }
  return table;
}

Table make_sampling_error_table(const SweepFolder& folder, const std::vector<RunEntry>& runs) {
  Table table = empty_table(
      "text model, text phase, integer order, text quantity, integer heads, real sampled, real "
      "exact, real difference, real rms_of_heads, real largest_of_heads");
  for (const auto& run : runs) {
    const auto sampled = folder.results_folder(run.label);
    const auto exact = folder.statistics_results_folder(run.label);
    if (!path_exists(exact + "/summary.json")) continue;
    // Columns that exist both in the analysis of a capture and in the analysis of statistics.
    const std::pair<const char*, std::vector<const char*>> sampled_columns[] = {
        {"qk", {"r_q", "r_k", "explained_variance"}},
        {"rotated",
         {"position_r", "r_q_a", "r_k_a", "bias_strength", "separation_strength",
          "plane_var_fraction"}},
        {"head_metrics", {"q_R2_pos"}},
        {"geometry", {"rank_entropy_q_post", "rank_entropy_k_post"}}};
    for (const auto& [file, columns] : sampled_columns)
      for (const auto* column : columns)
        add_sampling_error_row(table, run, column,
                               read_column_by_head<double>(sampled, file, column),
                               read_column_by_head<double>(exact, file, column));
    add_class_differences(table, run,
                          read_column_by_head<std::string>(sampled, "taxonomy", "class"),
                          read_column_by_head<std::string>(exact, "taxonomy", "class"));
  }
  return table;
}

}  // namespace qkscope
