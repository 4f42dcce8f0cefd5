#include "study/overview.h"

#include <limits>

#include "core/error.h"

namespace qkscope {
namespace {

// Heads of a group of layers, by whichever analysis was run.
std::int64_t heads_of(const Json& summary, const std::string& layers) {
  const Json& counts = summary.at("counts");
  return counts.at(layers == "all" ? "analysed" : layers).get<std::int64_t>();
}

OverviewRow read_row(const Json& summary, const RunEntry& run, const std::string& layers) {
  OverviewRow row{.label = run.label,
                  .phase = run.phase,
                  .order = run.order,
                  .layers = layers,
                  .heads = heads_of(summary, layers),
                  .values = {}};
  for (const auto& measure : overview_measures()) {
    const Json empty = Json::object();
    const Json group = summary.value(measure.section, empty).value(layers, empty);
    const Json number = group.value(measure.key, empty).value(measure.field, Json());
    if (number.is_number()) row.values[measure.name] = number.get<double>();
  }
  return row;
}

}  // namespace

const std::vector<OverviewMeasure>& overview_measures() {
  static const std::vector<OverviewMeasure> kMeasures = {
      {"r_q", "pca", "r_q", "mean"},
      {"r_k", "pca", "r_k", "mean"},
      {"abs_r_k", "pca", "abs_r_k", "mean"},
      {"pc0_variance", "pca", "explained_variance", "mean"},
      {"position_dominated", "taxonomy", "position_dominated", "fraction"},
      {"q_positional", "taxonomy", "q_positional", "fraction"},
      {"k_positional", "taxonomy", "k_positional", "fraction"},
      {"content_focused", "taxonomy", "content_focused", "fraction"},
      {"mixed", "taxonomy", "mixed", "fraction"},
      {"bias_strength", "rotation", "bias_strength", "mean"},
      {"alpha_k", "rotation", "alpha_k", "mean"},
      {"abs_r_k_a", "rotation", "abs_r_k_a", "mean"},
      {"separation_strength", "rotation", "separation_strength", "mean"},
      {"plane_var_fraction", "rotation", "plane_var_fraction", "mean"},
      {"ap_overall", "plasticity", "ap_overall", "mean"},
      {"ap_first20", "plasticity", "ap_first20", "mean"},
      {"ap_last20", "plasticity", "ap_last20", "mean"},
      {"ap_drop", "plasticity", "ap_drop", "mean"}};
  return kMeasures;
}

double OverviewRow::value(const std::string& name) const {
  const auto found = values.find(name);
  return found == values.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

std::vector<OverviewRow> read_overview(const SweepFolder& folder,
                                       const std::vector<RunEntry>& runs) {
  std::vector<OverviewRow> rows;
  for (const auto& run : runs) {
    if (run.state != RunState::done) continue;
    const auto file = folder.results(run.label) + "/summary.json";
    const Json summary = load_json(file);
    try {
      rows.push_back(read_row(summary, run, "all"));
      const auto all = rows.back().heads;
      for (const auto* layers : {"rope", "nope", "unknown"})
        if (const auto heads = heads_of(summary, layers); heads > 0 && heads < all)
          rows.push_back(read_row(summary, run, layers));
    } catch (const Json::exception& error) {
      bad_input("{}: not a summary as an analysis writes it: {}", file, error.what());
    }
  }
  return rows;
}

Table overview_table(const std::vector<OverviewRow>& rows) {
  Table table;
  table.column("model", Table::Type::text)
      .column("phase", Table::Type::text)
      .column("order", Table::Type::integer)
      .column("layers", Table::Type::text)
      .column("heads", Table::Type::integer);
  for (const auto& measure : overview_measures()) table.column(measure.name, Table::Type::real);
  for (const auto& row : rows) {
    std::vector<Table::Cell> cells = {row.label, row.phase, row.order, row.layers, row.heads};
    for (const auto& measure : overview_measures()) cells.push_back(row.value(measure.name));
    table.add(std::move(cells));
  }
  return table;
}

}  // namespace qkscope
