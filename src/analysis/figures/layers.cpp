// Means over heads: rows are runs, columns are depth or dimensions of a head.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"

namespace qkscope {
namespace {

constexpr int kDepthBins = 10;

using ValuesByRunAndColumn =
    std::map<std::pair<std::size_t, std::int64_t>, std::vector<double>>;  // (run, x)

// Heat map data, one row per cell: x, row index of the run, mean over heads, head count, model.
Table mean_table(const AnalysisResults& results, const ValuesByRunAndColumn& cells, const char* x,
                 const char* mean) {
  Table table = empty_table(
      fmt::format("integer {}, integer row, real {}, integer heads, text model", x, mean));
  for (const auto& [place, heads] : cells)
    table.add({place.second, -as_integer_cell(place.first), mean_of(heads), std::ssize(heads),
               results.run_label(place.first)});
  return table;
}

// Mean over the heads in each tenth of the depth.
Table depth_means(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& frame = results.frame(kind.tables.front());
  const auto& values = frame.real_column(kind.text("column"));
  const bool absolute = kind.keys.value("absolute", false);
  const auto& layers = frame.integer_column("layer");
  std::vector<std::int64_t> last(results.runs().size(), 1);  // last layer with a head
  for (std::size_t row = 0; row < frame.rows(); ++row)
    last[frame.run_indices()[row]] = std::max(last[frame.run_indices()[row]], layers[row]);
  ValuesByRunAndColumn cells;
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if (!frame.is_first_component(row) || std::isnan(values[row])) continue;
    const auto run = frame.run_indices()[row];
    const auto bin = std::min<std::int64_t>(kDepthBins - 1, kDepthBins * layers[row] / last[run]);
    cells[{run, bin}].push_back(absolute ? std::fabs(values[row]) : values[row]);
  }
  return mean_table(results, cells, "bin", "mean");
}

double figure_height_for_runs(const AnalysisResults& results) {
  return 0.62 + 0.2 * static_cast<double>(results.runs().size());
}

}  // namespace

Figure layer_heatmap(const AnalysisResults& results, const FigureKind& kind) {
  static const std::map<std::string, std::vector<std::string>> kColours = {
      {"blues", style::kBlues}, {"reds", style::kReds}, {"around_zero", style::kAroundZero}};
  const bool around_zero = kind.text("colours") == "around_zero";
  Figure figure;
  figure.data = depth_means(results, kind);
  if (figure.data.rows() == 0) return {};
  figure.height = figure_height_for_runs(results) + (around_zero ? 0.16 : 0);
  figure.script = gnuplot_palette_command(kColours.at(kind.text("colours"))) +
                  run_axis_commands(results) + kind.text("script");
  std::string dark = "$3 >= 0.5";
  if (around_zero) {
    const auto& means = figure.data.find("mean")->reals;
    const auto unit = choose_axis_unit({means}, "per token");
    const double largest = std::ranges::max(absolute_values(means));
    const double top = largest > 0 ? largest : 1;
    dark = fmt::format("abs($3) > {}", 0.7 * top);
    figure.script += kind.fill("around_zero", fmt::arg("top", top), fmt::arg("unit", unit.text),
                               fmt::arg("scale", unit.scale));
  } else {
    figure.script += kind.text("to_one");
  }
  figure.script +=
      kind.fill("plot", fmt::arg("cells", plot_heatmap_cells(1, 2, 3)), fmt::arg("dark", dark));
  figure.caption =
      kind.fill("caption", kind.text("what"),
                around_zero ? "Red is above 0, blue below, white 0" : "Colours run from 0 to 1");
  return figure;
}

Figure component_weights(const AnalysisResults& results, const FigureKind& kind) {
  Figure figure;
  const ResultFrame& weights = results.frame("head_component_weights");
  const auto& values = weights.real_column("component_weight");
  const auto& components = weights.integer_column("component");
  ValuesByRunAndColumn cells;
  for (std::size_t row = 0; row < weights.rows(); ++row)
    if (!std::isnan(values[row]))
      cells[{weights.run_indices()[row], components[row]}].push_back(values[row]);
  figure.data = mean_table(results, cells, "dimension", "mean_share");
  if (results.has_single_run()) {
    figure.script = kind.fill("script_of_one", fmt::arg("right", std::ranges::max(components) + 1));
    return figure;
  }
  figure.height = figure_height_for_runs(results);
  figure.script = gnuplot_palette_command(style::kGreens) + run_axis_commands(results) +
                  kind.fill("script") + plot_heatmap_cells(1, 2, 3) + "\n";
  return figure;
}

}  // namespace qkscope
