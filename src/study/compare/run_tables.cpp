#include "study/compare/run_tables.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/results/results_folder.h"
#include "base/core/error.h"
#include "base/core/project.h"
#include "base/io/folder.h"
#include "base/numerics/sample_statistics.h"
#include "base/tables/csv.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

// Finds columns by name; nullopt if one is missing. The column "head" is "q_head" in older tables.
std::optional<std::vector<const Table::Column*>> find_columns(
    const Table& table, const std::vector<std::string>& names) {
  std::vector<const Table::Column*> columns;
  for (const auto& name : names) {
    const auto* found = table.find(name);
    if (found == nullptr && name == "head") found = table.find("q_head");
    if (found == nullptr) return {};
    columns.push_back(found);
  }
  return columns;
}

// Appends the `wanted` metric of every head that has a value. Returns false if a column is missing.
bool append_head_values(const Table& table, const HeadMetric& wanted,
                        std::vector<HeadValue>& heads) {
  const bool is_text = !wanted.equals.empty();
  const auto& divisor = wanted.divisor.empty() ? wanted.column : wanted.divisor;
  const auto columns = find_columns(table, {"layer", "head", wanted.column, divisor});
  if (!columns || ((*columns)[2]->type == Table::Type::text) != is_text) return false;
  const auto& column = *(*columns)[2];
  const auto* component = table.find("pc");
  for (std::size_t row = 0; row < as_index(table.rows()); ++row) {
    if (component != nullptr && component->integers[row] != wanted.pc) continue;
    if (is_text && column.texts[row].empty()) continue;
    double value = is_text ? column.texts[row] == wanted.equals : column.number(row);
    if (!wanted.divisor.empty()) value /= (*columns)[3]->number(row);
    if (std::isfinite(value))
      heads.push_back({(*columns)[0]->integers[row], (*columns)[1]->integers[row],
                       wanted.absolute ? std::fabs(value) : value});
  }
  return true;
}

// Appends the plasticity profiles from a head_profile table; none if it has no bin columns.
void append_plasticity_profiles(const Table& table, std::vector<HeadPlasticityProfile>& profiles) {
  const auto columns = find_columns(table, {"layer", "head", "bin_low", "bin_high", "ap"});
  if (!columns) return;
  std::map<std::pair<std::int64_t, std::int64_t>, HeadPlasticityProfile> by_head;  // layer, head
  for (std::size_t row = 0; row < as_index(table.rows()); ++row) {
    const double ap = (*columns)[4]->reals[row];
    if (std::isnan(ap)) continue;
    const auto layer = (*columns)[0]->integers[row];
    auto& profile = by_head[{layer, (*columns)[1]->integers[row]}];
    profile.layer = layer;
    profile.values.push_back({(*columns)[2]->number(row), (*columns)[3]->number(row), ap});
  }
  for (auto& [head, profile] : by_head) {
    std::ranges::sort(profile.values, {}, &HeadPlasticityBin::low);
    profiles.push_back(std::move(profile));
  }
}

// Unweighted mean over the profile bins whose centres lie in the `wanted` interval. The interval is
// a fraction of the range from the first to the last non-empty bin, as for ap_first20.
double mean_over_bins(const HeadPlasticityProfile& profile, const PositionInterval& wanted) {
  constexpr double kRounding = 1e-9;
  const double first = profile.values.front().low;
  const double range = profile.values.back().high - first;
  std::vector<double> inside;
  for (const auto& value : profile.values) {
    const double place =
        wanted.fraction ? (value.middle_position() - first) / range : value.middle_position();
    // A centre on an edge belongs to the upper bin; the tolerance absorbs rounding errors.
    if (place >= wanted.low - kRounding && place < wanted.high - kRounding)
      inside.push_back(value.ap);
  }
  return mean_of(inside);
}

// Mean of value(profile), ignoring NaN, over the heads of published.layer, if set, or all layers.
template <typename Value>
RecomputedValue mean_over_heads(const PublishedNumber& published, RunTables& run, Value value,
                                const std::string& column) {
  if (run.plasticity_profiles().empty())
    return {.missing = "the results have no profile with bins (head_profile)"};
  std::vector<double> values;
  for (const auto& profile : run.plasticity_profiles()) {
    const double of_head = value(profile);
    if ((!published.layer || profile.layer == *published.layer) && !std::isnan(of_head))
      values.push_back(of_head);
  }
  if (values.empty()) return {.missing = "no bin of our profile lies there"};
  return {.value = mean_of(values), .column = column};
}

std::string describe_position_interval(const PositionInterval& bin) {
  return bin.fraction ? fmt::format("{:g} to {:g} % of the range", 100 * bin.low, 100 * bin.high)
                      : fmt::format("{:g} to {:g} tokens", bin.low, bin.high);
}

enum class Aggregation { mean, last };

// Aggregates a column over the rows that meet the conditions. `no_row`: message if no row does.
RecomputedValue aggregate_rows(RunTables& run, const std::string& table, const std::string& column,
                               const RunTables::ColumnConditions& conditions,
                               const std::string& no_row, Aggregation kind) {
  const auto values = run.select_column_values(table, column, conditions);
  if (!values) return {.missing = "the results have no table " + table};
  if (values->empty()) return {.missing = no_row};
  if (kind == Aggregation::last) return {.value = values->back(), .column = table + " " + column};
  return {.value = mean_of(*values), .column = fmt::format("mean of {} {}", table, column)};
}

// Recomputes the absolute correlation or the explained variance of one PCA component of a head.
RecomputedValue evaluate_pca_component(const PublishedNumber& published, RunTables& run) {
  const bool correlation = published.metric.starts_with("correlation");
  auto ours =
      aggregate_rows(run, "correlations", correlation ? "correlation" : "explained_variance_ratio",
                     {{"layer", to_double(*published.layer)},
                      {"head", to_double(published.head)},
                      {"kind", std::string(1, published.side)},
                      {"pca_dim", to_double(published.index)}},
                     "this head was not analysed", Aggregation::last);
  if (!ours.missing.empty()) return ours;
  ours.value = std::fabs(ours.value);
  if (correlation) ours.column = "correlations |correlation|";
  ours.sign_arbitrary = true;
  return ours;
}

}  // namespace

std::vector<AnalyzedRunFolder> find_run_folders(const std::string& folder) {
  if (path_exists(folder + "/runs.json")) {
    const SweepFolder sweep(folder);
    std::vector<AnalyzedRunFolder> runs;
    for (const auto& run : read_sweep_index(sweep).runs)
      if (run.state == RunState::done) runs.push_back({run.label, sweep.results_folder(run.label)});
    if (runs.empty()) reject("{}: no run of this sweep is finished", folder);
    return runs;
  }
  const auto file = folder + "/summary.json";
  if (!path_exists(file))
    reject(
        "{}: there is no runs.json and no summary.json; expected the folder of a sweep "
        "(RESULTS/NAME) or the results of 'qkscope analyze'",
        folder);
  check_results_complete(folder);
  const Json summary = load_json(file);
  if (!summary.is_object() || !summary.value("model", Json()).is_string())
    reject("{}: not a summary as an analysis writes it", file);
  return {{summary["model"].get<std::string>(), folder}};
}

std::string HeadMetric::describe() const {
  auto text = divisor.empty() ? column : column + " / " + divisor;
  if (absolute) text = "|" + text + "|";
  if (!equals.empty()) text += " " + equals;
  if (table == "qk") text += fmt::format(" of pc {}", pc);
  return table + " " + text;
}

std::string RunTables::label() const {
  return runs_.size() == 1 ? runs_.front().label : fmt::format("{} runs", runs_.size());
}

// Returns the table `name` of every run, or null if any run lacks it. Owned by this object.
const std::vector<Table>* RunTables::load_tables(const std::string& name) {
  const auto [found, anew] = tables_.try_emplace(name);
  if (anew) {
    std::vector<Table> all;
    for (const auto& run : runs_) {
      const auto file = run.folder + "/" + name + ".parquet";
      summaries_.add(run.folder + "/" + results_layout::kSummaryFile);
      if (path_exists(file)) all.push_back(read_parquet_table_with_gaps(file));
    }
    summaries_.check_unchanged();
    if (all.size() == runs_.size()) found->second = std::move(all);
  }
  return found->second ? &*found->second : nullptr;
}

std::optional<std::vector<HeadValue>> RunTables::find_head_values(const HeadMetric& metric) {
  const auto* all = load_tables(metric.table);
  if (all == nullptr) return {};
  std::vector<HeadValue> heads;
  for (const auto& table : *all)
    if (!append_head_values(table, metric, heads)) return {};
  return heads;
}

const std::vector<HeadPlasticityProfile>& RunTables::plasticity_profiles() {
  if (profiles_) return *profiles_;
  profiles_.emplace();
  if (const auto* all = load_tables("head_profile"))
    for (const auto& table : *all) append_plasticity_profiles(table, *profiles_);
  return *profiles_;
}

double RunTables::standard_error(const std::string& metric) {
  const auto file = runs_.front().folder + "/errors.csv";
  if (!errors_) {
    errors_.emplace();
    if (runs_.size() == 1 && path_exists(file)) {
      using enum Table::Type;
      const auto table = read_csv_table(file, {{"quantity", text}, {"heads", text}, {"se", real}});
      const auto& columns = table.columns();
      for (std::size_t row = 0; row < as_index(table.rows()); ++row)
        if (columns[1].texts[row] == "all")
          errors_->emplace(columns[0].texts[row], columns[2].reals[row]);
    }
  }
  return map_value_or(*errors_, metric, kNan);
}

const Json& RunTables::analysis_options() {
  if (options_) return *options_;
  options_ = Json::object();
  const auto file = runs_.front().folder + "/summary.json";
  const Json summary = path_exists(file) ? load_json(file) : Json();
  if (summary.is_object() && summary.contains("options") && summary["options"].is_object())
    options_ = summary["options"];
  return *options_;
}

std::optional<std::vector<double>> RunTables::select_column_values(
    const std::string& table, const std::string& column, const ColumnConditions& conditions) {
  const auto* all = load_tables(table);
  if (all == nullptr) return {};
  std::vector<std::string> names = {column};
  for (const auto& [name, wanted] : conditions) names.push_back(name);
  std::vector<double> values;
  for (const auto& one : *all) {
    const auto columns = find_columns(one, names);
    if (!columns) return {};
    for (std::size_t row = 0; row < as_index(one.rows()); ++row) {
      const auto met = [&](std::size_t i) {
        const auto& found = *(*columns)[i + 1];
        if (const auto* text = std::get_if<std::string>(&conditions[i].second))
          return found.texts[row] == *text;
        return std::fabs(found.number(row) - std::get<double>(conditions[i].second)) < 0.5;
      };
      bool all_met = !std::isnan((*columns)[0]->number(row));
      for (std::size_t i = 0; i < conditions.size() && all_met; ++i) all_met = met(i);
      if (all_met) values.push_back((*columns)[0]->number(row));
    }
  }
  return values;
}

RecomputedValue recompute_profile_mean(const PublishedNumber& published, RunTables& run) {
  auto column = "head_profile ap, " + describe_position_interval(published.bin);
  if (published.minus) column += " less " + describe_position_interval(*published.minus);
  const auto in_bins = [&](const HeadPlasticityProfile& profile) {
    const double mean = mean_over_bins(profile, published.bin);
    return published.minus ? mean - mean_over_bins(profile, *published.minus) : mean;
  };
  return mean_over_heads(published, run, in_bins, column);
}

RecomputedValue recompute_table_value(const PublishedNumber& published, RunTables& run) {
  const double middle = 0.5 * (published.bin.low + published.bin.high);
  const auto value_at_middle = [&](const HeadPlasticityProfile& profile) {
    for (const auto& bin : profile.values)
      if (bin.low <= middle && middle < bin.high) return bin.ap;
    return kNan;
  };
  switch (published.value_kind) {
    case PublishedNumberKind::profile:
      return recompute_profile_mean(published, run);
    case PublishedNumberKind::line:
      return mean_over_heads(published, run, value_at_middle,
                             fmt::format("head_profile ap at {:.0f} tokens", middle));
    case PublishedNumberKind::heatmap:
      return aggregate_rows(run, "pair_heatmap", "ap",
                            {{"key_distance_low", published.bin.low},
                             {"key_distance_high", published.bin.high},
                             {"query_distance_low", to_double(published.index)}},
                            "our heatmap has no such cell", Aggregation::mean);
    case PublishedNumberKind::weight:
      return aggregate_rows(run, "head_component_weights", "component_weight",
                            {{"component", to_double(published.index)}},
                            "our heads have no such dimension", Aggregation::mean);
    case PublishedNumberKind::components:
      return evaluate_pca_component(published, run);
    case PublishedNumberKind::metric:
      break;
  }
  return {.missing = "not computed by qkscope"};
}

RecomputedValue evaluate_plane_variance_share(RunTables& run, std::int64_t layer, std::int64_t head,
                                              std::int64_t pair) {
  const auto place = fmt::format("layer {} head {}", layer, head);
  auto ours = aggregate_rows(
      run, "complement", "variance_share",
      {{"layer", to_double(layer)}, {"head", to_double(head)}, {"pair", to_double(pair)}},
      place + " was not analysed", Aggregation::last);
  if (ours.missing.empty()) ours.column += " of " + place;
  return ours;
}

}  // namespace qkscope
