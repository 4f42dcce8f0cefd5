#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

#include "base/core/error.h"
#include "base/core/thread_pool.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "base/tables/parquet_stream.h"
#include "qkscope/tables.h"
#include "study/sweep/sweep.h"

namespace qkscope {
namespace {

// A measure of the overview and its place in summary.json.
struct Measure {
  const char* name;     // column of overview.csv
  const char* section;  // section of summary.json
  const char* key;      // key in the section
  const char* field;    // "mean", "median" or "fraction"
};
constexpr Measure kMeasures[] = {
    {"r_q", "pca", "r_q", "mean"},
    {"r_k", "pca", "r_k", "mean"},
    {"abs_r_k", "pca", "abs_r_k", "mean"},
    {"pc0_variance", "pca", "explained_variance", "mean"},
    {"position_dominated", "taxonomy", "position_dominated", "fraction"},
    {"q_positional", "taxonomy", "q_positional", "fraction"},
    {"k_positional", "taxonomy", "k_positional", "fraction"},
    {"content_focused", "taxonomy", "content_focused", "fraction"},
    {"mixed", "taxonomy", "mixed", "fraction"},
    {"abs_r_q_axis", "pca", "abs_r_q_axis", "mean"},
    {"abs_r_k_axis", "pca", "abs_r_k_axis", "mean"},
    {"position_dominated_axis", "taxonomy_axis", "position_dominated", "fraction"},
    {"q_positional_axis", "taxonomy_axis", "q_positional", "fraction"},
    {"k_positional_axis", "taxonomy_axis", "k_positional", "fraction"},
    {"content_focused_axis", "taxonomy_axis", "content_focused", "fraction"},
    {"mixed_axis", "taxonomy_axis", "mixed", "fraction"},
    {"qk_accuracy", "pca", "qk_accuracy", "mean"},
    {"bias_strength", "rotation", "bias_strength", "mean"},
    {"share_positive_bias", "rotation", "share_positive_bias", "mean"},
    {"share_positive_mu_q_a", "rotation", "share_positive_mu_q_a", "mean"},
    {"alpha_k", "rotation", "alpha_k", "mean"},
    {"abs_alpha_k", "rotation", "abs_alpha_k", "mean"},
    {"slope_ratio_median", "rotation", "slope_ratio_median", "median"},
    {"signed_slope_ratio_median", "rotation", "signed_slope_ratio_median", "median"},
    {"r_q_a", "rotation", "r_q_a", "mean"},
    {"abs_r_q_a", "rotation", "abs_r_q_a", "mean"},
    {"abs_r_q_a_null", "rotation", "abs_r_q_a_null", "mean"},
    {"r_k_a", "rotation", "r_k_a", "mean"},
    {"abs_r_k_a", "rotation", "abs_r_k_a", "mean"},
    {"abs_r_k_a_null", "rotation", "abs_r_k_a_null", "mean"},
    {"separation_strength", "rotation", "separation_strength", "mean"},
    {"plane_var_fraction", "rotation", "plane_var_fraction", "mean"},
    {"share_var_b_above_a", "rotation", "share_var_b_above_a", "mean"},
    {"active_planes", "rotation", "active_planes", "mean"},
    {"active_variance", "rotation", "active_variance", "mean"},
    {"ap_profile_overall", "plasticity", "ap_profile_overall", "mean"},
    {"ap_first20", "plasticity", "ap_first20", "mean"},
    {"ap_last20", "plasticity", "ap_last20", "mean"},
    {"ap_drop", "plasticity", "ap_drop", "mean"},
    {"ap_free_overall", "plasticity", "ap_free_overall", "mean"},
    {"ap_free_first20", "plasticity", "ap_free_first20", "mean"},
    {"ap_free_last20", "plasticity", "ap_free_last20", "mean"},
    {"ap_free_drop", "plasticity", "ap_free_drop", "mean"}};

// Column of the standard error over texts of a measure.
std::string error_of(const std::string& measure) {
  return measure + "_se";
}

// Number of heads in a group of layers.
std::int64_t heads_of(const Json& summary, const std::string& layers) {
  const Json& counts = summary.at("counts");
  if (layers == "all") return counts.at("analysed").get<std::int64_t>();
  return counts.value(layers, std::int64_t{0});  // older summaries have no count by attention
}

// Column of the exact value of a measure, over every token.
std::string exact_of(const std::string& measure) {
  return measure + "_exact";
}

// Returns a value of summary.json, or null if missing.
Json number_in(const Json& summary, const Measure& measure, const std::string& layers,
               const char* field) {
  const Json empty = Json::object();
  return summary.value(measure.section, empty)
      .value(layers, empty)
      .value(measure.key, empty)
      .value(field, Json());
}

// `exact` is the summary of the run's statistics, null if there is none.
OverviewRow read_row(const Json& summary, const Json& exact, const RunEntry& run,
                     const std::string& layers) {
  OverviewRow row{.label = run.label,
                  .phase = run.phase,
                  .order = run.order,
                  .layers = layers,
                  .heads = heads_of(summary, layers),
                  .values = {}};
  for (const auto& measure : kMeasures) {
    const auto put = [&](const std::string& name, const Json& number) {
      if (number.is_number()) row.values[name] = number.get<double>();
    };
    put(measure.name, number_in(summary, measure, layers, measure.field));
    put(error_of(measure.name), number_in(summary, measure, layers, "se"));
    if (exact.is_object())
      put(exact_of(measure.name), number_in(exact, measure, layers, measure.field));
  }
  return row;
}

// Content of overview.csv.
Table overview_table(const std::vector<OverviewRow>& rows) {
  Table table;
  table.column("model", Table::Type::text)
      .column("phase", Table::Type::text)
      .column("order", Table::Type::integer)
      .column("layers", Table::Type::text)
      .column("heads", Table::Type::integer);
  const auto measured = [&](const std::string& name) {
    return std::ranges::any_of(rows,
                               [&](const OverviewRow& row) { return row.values.contains(name); });
  };
  // Columns of exact values exist only if some run has exact values.
  for (const auto& measure : kMeasures) {
    table.column(measure.name, Table::Type::real).column(error_of(measure.name), Table::Type::real);
    if (measured(exact_of(measure.name))) table.column(exact_of(measure.name), Table::Type::real);
  }
  for (const auto& row : rows) {
    std::vector<Table::Cell> cells = {row.label, row.phase, row.order, row.layers, row.heads};
    for (const auto& measure : kMeasures) {
      cells.push_back(row.value(measure.name));
      cells.push_back(row.value(error_of(measure.name)));
      if (table.find(exact_of(measure.name)) != nullptr)
        cells.push_back(row.value(exact_of(measure.name)));
    }
    table.add(std::move(cells));
  }
  return table;
}

constexpr char kTableEnding[] = ".parquet";

using Column = Table::Column;

// Tables that are made from statistics only.
constexpr const char* kStatisticsTables[] = {"attention", "distance", "key_channels"};

// Path of a run's table without its extension.
std::string table_path(const SweepFolder& folder, const RunEntry& run, const std::string& name) {
  auto own = folder.results(run.label) + "/" + name;
  const bool of_statistics =
      std::ranges::any_of(kStatisticsTables, [&](const char* table) { return name == table; });
  if (!of_statistics || path_exists(own + kTableEnding)) return own;
  return folder.exact_results(run.label) + "/" + name;
}

// Names of all tables of these runs.
std::set<std::string> table_names(const SweepFolder& folder, const std::vector<RunEntry>& runs) {
  std::set<std::string> names;
  for (const auto& run : runs) {
    for (const auto& file : names_in(folder.results(run.label)))
      if (file.ends_with(kTableEnding))
        names.insert(file.substr(0, file.size() - sizeof kTableEnding + 1));
    for (const char* name : kStatisticsTables)
      if (path_exists(table_path(folder, run, name) + kTableEnding)) names.insert(name);
  }
  return names;
}

// Columns of a table with model, phase and order in front.
std::vector<Column> with_run(const Table& table, const RunEntry& run) {
  const auto rows = static_cast<std::size_t>(table.rows());
  std::vector<Column> columns = {
      {"model", Table::Type::text, {}, {}, std::vector<std::string>(rows, run.label)},
      {"phase", Table::Type::text, {}, {}, std::vector<std::string>(rows, run.phase)},
      {"order", Table::Type::integer, std::vector<std::int64_t>(rows, run.order), {}, {}}};
  for (const auto& column : table.columns())
    if (column.name != "model") columns.push_back(column);
  return columns;
}

void combine(const SweepFolder& folder, const std::vector<RunEntry>& runs,
             const std::string& name) {
  std::vector<const RunEntry*> with;  // runs that have the table
  bool csv = false;
  for (const auto& run : runs) {
    const auto path = table_path(folder, run, name);
    if (path_exists(path + kTableEnding)) with.push_back(&run);
    csv = csv || path_exists(path + ".csv");
  }
  GrowingTable table(folder.path() + "/" + name, csv);
  for (const auto* run : with) {
    const auto path = table_path(folder, *run, name) + kTableEnding;
    if (!table.append(with_run(read_parquet_table_with_gaps(path), *run)))
      bad_input("{}: its columns are not those of the runs before it; analyse it again", path);
  }
  table.finish();
}

// Removes tables that no finished run has any more.
void remove_others(const SweepFolder& folder, const std::set<std::string>& names) {
  for (const auto& file : names_in(folder.path())) {
    const std::filesystem::path path(file);
    const bool table = path.extension() == ".csv" || path.extension() == kTableEnding;
    if (table && !names.contains(path.stem().string()))
      std::filesystem::remove(folder.path() + "/" + file);
  }
}

}  // namespace

const std::vector<std::string>& overview_measures() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& measure : kMeasures) list.emplace_back(measure.name);
    return list;
  }();
  return names;
}

double OverviewRow::value(const std::string& measure) const {
  const auto found = values.find(measure);
  return found == values.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

OverviewRow overview_of_results(const std::string& folder, const std::string& label) {
  const auto file = folder + "/summary.json";
  const Json summary = load_json(file);
  RunEntry run;
  run.label = label;
  try {
    return read_row(summary, Json(), run, "all");
  } catch (const Json::exception& error) {
    bad_input("{}: not a summary as an analysis writes it: {}", file, error.what());
  }
}

std::vector<OverviewRow> overview_of(const SweepFolder& folder, const std::vector<RunEntry>& runs) {
  std::vector<OverviewRow> rows;
  for (const auto& run : runs) {
    if (run.state != RunState::done) continue;
    const auto file = folder.results(run.label) + "/summary.json";
    const Json summary = load_json(file);
    try {
      const auto exact_file = folder.exact_results(run.label) + "/summary.json";
      const Json exact = path_exists(exact_file) ? load_json(exact_file) : Json();
      rows.push_back(read_row(summary, exact, run, "all"));
      const auto all = rows.back().heads;
      for (const auto* layers : {"rope", "nope", "unknown", "full", "sliding"})
        if (const auto heads = heads_of(summary, layers); heads > 0 && heads < all)
          rows.push_back(read_row(summary, exact, run, layers));
    } catch (const Json::exception& error) {
      bad_input("{}: not a summary as an analysis writes it: {}", file, error.what());
    }
  }
  return rows;
}

std::vector<OverviewRow> read_overview(const std::string& sweep_folder) {
  return translate_exceptions([&] {
    const SweepFolder folder(sweep_folder);
    return overview_of(folder, read_sweep_index(folder).runs);
  });
}

void combine_tables(const SweepFolder& folder, const SweepConfig& config) {
  std::vector<RunEntry> done;
  for (auto& entry : folder.entries(config))
    if (entry.state == RunState::done) done.push_back(std::move(entry));
  remove_temporary_files(folder.path());
  auto names = table_names(folder, done);
  const std::vector<std::string> list(names.begin(), names.end());
  parallel_for(std::ssize(list),
               [&](std::int64_t i) { combine(folder, done, list[static_cast<std::size_t>(i)]); });
  if (!done.empty()) {
    const auto overview = overview_table(overview_of(folder, done));
    overview.write_csv(folder.path() + "/overview.csv");
    overview.write_parquet(folder.path() + "/overview.parquet");
    names.insert("overview");
    const auto sampling = sampling_table(folder, done);
    if (sampling.rows() > 0) {
      sampling.write_csv(folder.path() + "/sampling.csv");
      sampling.write_parquet(folder.path() + "/sampling.parquet");
      names.insert("sampling");
    }
  }
  remove_others(folder, names);
}

void make_tables(const SweepFolder& folder, const SweepConfig& config, bool quiet) {
  const auto lock = folder.lock_tables();
  // Repeat if another machine uploaded its tables meanwhile, now with its runs.
  do {
    folder.download_locked(config);
    folder.write_runs(config);
    combine_tables(folder, config);
  } while (!folder.upload(config, quiet));
}

}  // namespace qkscope
