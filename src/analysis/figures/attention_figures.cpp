// Figures of statistics that cover every token: onset of attention patterns during training,
// attention by distance, and outlier channels of keys.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"
#include "base/core/numbers.h"
#include "base/core/project.h"

namespace qkscope {
namespace {

using LayerHead = std::pair<std::int64_t, std::int64_t>;  // layer, head

// Mean attention mass by distance band (bit width of the distance) and head class.
using AttentionMassByBand = std::map<std::int64_t, std::map<std::string, std::vector<double>>>;

AttentionMassByBand attention_mass_by_distance_band(const AnalysisResults& results) {
  const ResultFrame& frame = results.frame("distance");
  const auto& layers = frame.integer_column("layer");
  const auto& heads = frame.head_column();
  const ResultFrame& taxonomy = results.frame("taxonomy");
  std::map<LayerHead, std::string> classes;
  for (std::size_t row = 0; row < taxonomy.rows(); ++row)
    classes[{taxonomy.integer_column("layer")[row], taxonomy.head_column()[row]}] =
        taxonomy.text_column("class")[row];
  AttentionMassByBand masses;
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    const auto found = classes.find({layers[row], heads[row]});
    const double mass = frame.real_column("mass")[row];
    if (found == classes.end() || std::isnan(mass)) continue;
    masses[frame.nullable_integer_column("width")[row]][found->second].push_back(mass);
  }
  // Drop distance bands beyond the longest text: no head has attention mass there.
  while (masses.size() > 1 &&
         std::ranges::all_of(masses.rbegin()->second,
                             [](const auto& of_class) { return mean_of(of_class.second) == 0; }))
    masses.erase(std::prev(masses.end()));
  return masses;
}

// Returns the CSV of the key channels: `ratio` is the largest magnitude of a channel over the
// median of its head's channels; `row` counts the heads of all layers from the top of the map.
Table channel_table(const ResultFrame& frame) {
  const auto& absmax = frame.real_column("absmax");
  const auto& layers = frame.integer_column("layer");
  const auto& numbers = frame.head_column();
  std::map<std::pair<bool, LayerHead>, std::vector<std::size_t>> heads;
  std::map<LayerHead, std::int64_t> map_rows;
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    const LayerHead place = {layers[row], numbers[row]};
    heads[{frame.text_column("stage")[row] == "post", place}].push_back(row);
    map_rows[place] = 0;
  }
  std::int64_t next = 0;
  for (auto& [place, map_row] : map_rows) map_row = next++;
  Table table = empty_table(
      "integer channel, integer row, real ratio, integer post, integer layer, integer head");
  for (const auto& [key, rows] : heads) {
    const auto& [post, place] = key;
    const auto ranges = project(rows, [&](std::size_t row) { return absmax[row]; });
    const double middle = quantile_of(ranges, 0.5);
    if (!(middle > 0)) continue;
    for (const auto row : rows)
      table.add({frame.nullable_integer_column("channel")[row], map_rows[place],
                 absmax[row] / middle, std::int64_t{post}, place.first, place.second});
  }
  return table;
}

}  // namespace

Figure attention_onset(const AnalysisResults& results, const FigureKind&) {
  const ResultFrame& frame = results.frame("attention");
  TrajectoryTable table(results);
  std::vector<PlotSeries> series;
  const auto add = [&](const char* name, std::vector<double> values, LegendEntry look) {
    series.push_back(table.add_line(name, std::move(values), std::move(look)));
  };
  add("induction_largest",
      project(frame.group_by_run("induction_head"),
              [](const auto& heads) { return heads.empty() ? kNan : std::ranges::max(heads); }),
      {"strongest induction head", style::kKey, style::kDiamond});
  add("sink_rate", mean_by_run(frame.group_by_run("sink_rate_64")),
      {"sinks", style::kNope, style::kSquare});
  add("position_dominated", mean_by_run(mark_class_members_by_run(results, "position_dominated")),
      {"position-dominated heads", style::kQuery, style::kCircle});
  return table.draw({},
                    {{"score or share", "set yrange [0:1.02]\nset ytics 0.2\n",
                      plot_series(series, results.runs().size())}},
                    {.legend = legend_entries(series)});
}

Figure distance_by_class(const AnalysisResults& results, const FigureKind& kind) {
  auto masses = attention_mass_by_distance_band(results);
  if (masses.empty()) return {};
  Figure figure;
  figure.data.column("width", Table::Type::integer).column("distance_low", Table::Type::integer);
  std::vector<LegendEntry> entries;
  std::string plots;
  std::vector<const char*> shown;
  for (const auto& c : style::kClasses) {
    const auto has_class = [&](const auto& band) { return band.second.contains(c.name); };
    if (std::ranges::none_of(masses, has_class)) continue;
    figure.data.column(c.name, Table::Type::real);
    entries.push_back({c.title, c.colour, style::kCircle});
    shown.push_back(c.name);
    plots += fmt::format("{}data using 1:{} with linespoints pt 7 ps 0.35*mark lw 1.4 lc rgb '{}'",
                         plots.empty() ? "plot " : ", \\\n  ", shown.size() + 2, c.colour);
  }
  if (shown.empty()) return empty_figure("no head has a class");
  std::string ticks;
  for (auto& [width, of_class] : masses) {
    const std::int64_t low = width == 0 ? 0 : std::int64_t{1} << (width - 1);
    std::vector<Table::Cell> cells = {width, low};
    for (const char* name : shown)
      cells.emplace_back(of_class.contains(name) ? mean_of(of_class[name]) : kNan);
    figure.data.add(std::move(cells));
    if (width % 2 == 0) ticks += fmt::format("{}'{}' {}", ticks.empty() ? "" : ", ", low, width);
  }
  const Legend legend(entries, style::kColumn);
  place_above_legend(figure, legend);
  figure.script += kind.fill("script", fmt::arg("ticks", ticks), fmt::arg("plots", plots),
                             fmt::arg("right", static_cast<double>(masses.rbegin()->first) + 0.5));
  return figure;
}

Figure key_channel_map(const AnalysisResults& results, const FigureKind& kind) {
  Figure figure;
  figure.data = channel_table(results.frame("key_channels"));
  for (const std::int64_t post : {0, 1})
    if (std::ranges::count(figure.data.find("post")->integers, post) == 0)
      return empty_figure(
          fmt::format("the statistics have no keys {} RoPE", post == 1 ? "after" : "before"));
  const auto last = [&](const char* column) {
    return static_cast<double>(std::ranges::max(figure.data.find(column)->integers));
  };
  const PanelGrid grid(grid_options(kind, 2));
  // The colour scale ends at the 99.9th percentile: outlier channels would darken all others.
  const double top = std::max(2.0, quantile_of(figure.data.find("ratio")->reals, 0.999));
  const auto settings =
      gnuplot_palette_command(style::kCividis) +
      kind.fill("settings", fmt::arg("top", top), fmt::arg("step", nice_tick_step(top, 3)),
                fmt::arg("text", 1 - 0.08 / grid.width()), fmt::arg("left", 1 - 0.5 / grid.width()),
                fmt::arg("wide", 0.09 / grid.width()), fmt::arg("right", last("channel") + 0.5),
                fmt::arg("bottom", last("row") + 0.5));
  grid.draw(figure, settings, [&](std::size_t post) -> PanelGrid::Panel {
    return {post == 0 ? "before RoPE" : "after RoPE", kind.fill("panel", fmt::arg("post", post))};
  });
  return figure;
}

}  // namespace qkscope
