// Comparison of model families.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

constexpr int kFamilyBins = 40;
constexpr char kOneFamily[] =
    "all runs are of one family of models; 'family' of a run in the sweep's file names another";

// Heads of all runs of one model family, or of all families.
struct ModelFamilyHeads {
  std::string name = {};
  std::vector<std::size_t> rows = {};  // (heads): of rotated.parquet
  std::vector<double> bias = {};       // (heads)
  std::vector<double> separation = {};

  void add(std::size_t row, double own_bias, double own_separation) {
    rows.push_back(row);
    bias.push_back(own_bias);
    separation.push_back(own_separation);
  }
};

// Families in the order of their first run.
std::vector<ModelFamilyHeads> group_runs_by_family(const AnalysisResults& results) {
  std::vector<ModelFamilyHeads> families;
  std::vector<std::size_t> of_run;
  for (const auto& run : results.runs()) {
    const std::string name = run.family.empty() ? "other" : run.family;
    const auto found = std::ranges::find(families, name, &ModelFamilyHeads::name);
    of_run.push_back(static_cast<std::size_t>(found - families.begin()));
    if (found == families.end()) families.push_back({.name = name});
  }
  const ResultFrame& rotated = results.frame("rotated");
  const auto& bias = rotated.real_column("bias_strength");
  const auto& separation = rotated.real_column("separation_strength");
  for (std::size_t row = 0; row < rotated.rows(); ++row)
    if (!std::isnan(bias[row]) && !std::isnan(separation[row]))
      families[of_run[rotated.run_indices()[row]]].add(row, bias[row], separation[row]);
  std::erase_if(families, [](const ModelFamilyHeads& family) { return family.rows.empty(); });
  return families;
}

Figure figure_without_families(const std::vector<ModelFamilyHeads>& families) {
  return families.empty() ? Figure() : empty_figure(kOneFamily);
}

// Returns the heads of all families, one family after the other.
ModelFamilyHeads join_families(const std::vector<ModelFamilyHeads>& families) {
  ModelFamilyHeads all;
  for (const auto& [name, rows, bias, separation] : families)
    for (std::size_t i = 0; i < rows.size(); ++i) all.add(rows[i], bias[i], separation[i]);
  return all;
}

// Names the five heads farthest from the medians of bias and separation; "" for all other heads.
// Heads outside the axis range get no name.
std::vector<std::string> family_head_names(const AnalysisResults& results,
                                           const ModelFamilyHeads& points) {
  const ResultFrame& rotated = results.frame("rotated");
  const double low = quantile_of(points.bias, 0.005);
  const double high = quantile_of(points.bias, 0.995);
  std::vector<std::string> names(points.rows.size());
  std::size_t shown = 0;
  for (const auto i : find_outliers(points.separation, points.bias, names.size())) {
    if (points.bias[i] < low || points.bias[i] > high) continue;
    const auto row = points.rows[i];
    names[i] =
        fmt::format("{} {}.{}", shorten_text(results.runs()[rotated.run_indices()[row]].title, 14),
                    rotated.nullable_integer_column("layer")[row], rotated.head_column()[row]);
    if (++shown == 5) break;
  }
  return names;
}

// Returns the CSV with one row per head, and a legend that shows the correlation in each family.
std::pair<Table, std::vector<LegendEntry>> family_table(
    const AnalysisResults& results, const std::vector<ModelFamilyHeads>& families,
    const ModelFamilyHeads& points) {
  Table table = empty_table(
      "integer family_index, real separation_strength, real bias_strength, real r_family, integer "
      "layer, integer head, text name, text family, text model");
  std::vector<LegendEntry> legend;
  const auto names = family_head_names(results, points);
  const ResultFrame& rotated = results.frame("rotated");
  const auto& layers = rotated.integer_column("layer");
  std::size_t place = 0;
  for (std::size_t i = 0; i < families.size(); ++i) {
    const auto& [name, rows, bias, separation] = families[i];
    const double r = pearson_r(separation, bias);
    legend.push_back(
        family_legend_entry(i, fmt::format("{}, {{/:Italic r}} = {:.2f}", escape_markup(name), r)));
    for (std::size_t head = 0; head < rows.size(); ++head)
      table.add({as_integer_cell(i), separation[head], bias[head], r, layers[rows[head]],
                 rotated.head_column()[rows[head]], names[place++],
                 replace_control_characters(name),
                 results.run_label(rotated.run_indices()[rows[head]])});
  }
  return {std::move(table), std::move(legend)};
}

}  // namespace

Figure bias_histogram(const AnalysisResults& results, const FigureKind& kind) {
  const auto families = group_runs_by_family(results);
  if (families.size() < 2) return figure_without_families(families);
  const auto all = join_families(families).bias;
  HistogramBins bins{quantile_of(all, 0.01), quantile_of(all, 0.99), kFamilyBins};
  if (!(bins.high > bins.low)) bins.high = bins.low + 1;
  const auto unit = choose_axis_unit({all}, "per token");
  Figure figure;
  figure.data =
      empty_table("integer panel, real low, real high, real fraction, integer heads, text family");
  double tallest = 0;
  for (std::size_t i = 0; i < families.size(); ++i) {
    const auto counts = bins.count_values(families[i].bias);
    for (int bin = 0; bin < kFamilyBins; ++bin) {
      const auto count = counts[static_cast<std::size_t>(bin)];
      const double fraction =
          static_cast<double>(count) / static_cast<double>(families[i].rows.size());
      tallest = std::max(tallest, fraction);
      figure.data.add({as_integer_cell(i), bins.edge(bin), bins.edge(bin + 1), fraction, count,
                       replace_control_characters(families[i].name)});
    }
  }
  auto options = grid_options(kind, families.size());
  options.x_label = fmt::format(fmt::runtime(options.x_label), unit.text);
  const PanelGrid grid(options);
  const auto settings = kind.fill(
      "settings", fmt::arg("low", bins.low * unit.scale), fmt::arg("high", bins.high * unit.scale),
      fmt::arg("x_step", nice_tick_step((bins.high - bins.low) * unit.scale, 4)),
      fmt::arg("top", 1.08 * tallest), fmt::arg("y_step", nice_tick_step(tallest, 3)));
  grid.draw(figure, settings, [&](std::size_t i) -> PanelGrid::Panel {
    const auto& bias = families[i].bias;
    const auto positive = std::ranges::count_if(bias, [](double x) { return x > 0; });
    const double share = static_cast<double>(positive) / static_cast<double>(bias.size());
    return {fmt::format("{}: {:.0f} % positive", families[i].name, 100 * share),
            kind.fill("panel", fmt::arg("panel", i), fmt::arg("mean", mean_of(bias) * unit.scale),
                      fmt::arg("scale", unit.scale),
                      fmt::arg("colour", family_legend_entry(i, "").colour))};
  });
  return figure;
}

Figure family_scatter(const AnalysisResults& results, const FigureKind& kind) {
  const auto families = group_runs_by_family(results);
  if (families.size() < 2) return figure_without_families(families);
  const ModelFamilyHeads points = join_families(families);
  auto [table, entries] = family_table(results, families, points);
  const auto unit = choose_axis_unit({points.bias}, "per token");
  // Clip the axis at the 0.5th and 99.5th percentile: outliers would compress all other heads.
  const double low = quantile_of(points.bias, 0.005) * unit.scale;
  const double high = quantile_of(points.bias, 0.995) * unit.scale;
  const double margin = std::max(0.05 * (high - low), 1e-12);
  const Legend legend(entries, style::kColumn);
  Figure figure;
  figure.data = std::move(table);
  figure.height = 0.4 + 2.0 + legend.height() + 0.06;
  figure.script =
      margin_commands(0.52, style::kColumn - 0.08, 0.36 + legend.height(), figure.height - 0.06) +
      legend.label_commands() +
      kind.fill("script", fmt::arg("low", low - margin), fmt::arg("high", high + margin),
                fmt::arg("below", 0.1 + legend.height()), fmt::arg("unit", unit.text));
  for (std::size_t i = 0; i < families.size(); ++i)
    figure.script += kind.fill("points", fmt::arg("family", i), fmt::arg("scale", unit.scale),
                               fmt::arg("point", entries[i].point_type),
                               fmt::arg("colour", entries[i].colour.substr(1)));
  figure.script += kind.fill("names", fmt::arg("scale", unit.scale));
  figure.caption = kind.fill("caption", pearson_r(points.separation, points.bias));
  return figure;
}

}  // namespace qkscope
