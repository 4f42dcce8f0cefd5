// Heat maps with one cell per head, and scatter plots of the queries and keys of individual heads,
// shaded by position: collages of many heads, and all planes of one head's orthogonal complement.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/figure.h"
#include "analysis/figures/results.h"
#include "analysis/figures/run_plots.h"
#include "base/core/numbers.h"

namespace qkscope {
namespace {

struct HeadMapCell {
  std::int64_t layer;
  std::int64_t head;
  double value;
  bool nope;
  bool sliding;
};

HeadMapCell make_map_cell(const ResultFrame& frame, std::size_t row, double value) {
  return {frame.nullable_integer_column("layer")[row], frame.head_column()[row], value,
          frame.is_nope(row), frame.attention_kind(row).starts_with("sliding")};
}

// Placement of the head map in the figure. Cells are square if the page is wide enough.
class HeadMapLayout {
 public:
  HeadMapLayout(const AnalysisResults& results, const std::vector<HeadMapCell>& cells, double right,
                double below)
      : title_(gnuplot_literal(shorten_text(results.runs().front().title, 52))), right_(right) {
    bool full = false;
    for (const auto& cell : cells) {
      layers_ = std::max(layers_, cell.layer + 1);
      heads_ = std::max(heads_, cell.head + 1);
      if (cell.nope) nope_.insert(cell.layer);
      if (cell.sliding) sliding_.insert(cell.layer);
      full = full || !cell.sliding;
    }
    if (!full) sliding_.clear();  // all layers are sliding: no marks
    bottom_ = 0.32 + below;
    const double wide = style::kColumn - kLeft - right_;
    const double square = static_cast<double>(heads_) * wide / static_cast<double>(layers_);
    tall_ = std::clamp(square, 0.9, 2.4);
    top_ = kTitle + (nope_.empty() && sliding_.empty() ? 0.08 : 0.2);
  }

  double height() const { return bottom_ + tall_ + top_; }
  double plot_top() const { return bottom_ + tall_; }
  double plot_bottom() const { return bottom_; }

  std::string axis_commands(const FigureKind& kind) const {
    const auto layers = static_cast<double>(layers_);
    const auto heads = static_cast<double>(heads_);
    return margin_commands(kLeft, style::kColumn - right_, bottom_, bottom_ + tall_) +
           kind.format("axes", fmt::arg("right", layers - 0.5), fmt::arg("top", heads - 0.5),
                       fmt::arg("x_step", integer_tick_step(layers, 6)),
                       fmt::arg("y_step", integer_tick_step(heads, 6)),
                       fmt::arg("below", bottom_ - 0.24), fmt::arg("title", title_),
                       fmt::arg("above", height() - 0.09)) +
           layer_mark_commands(nope_, "NoPE layers", 0, style::kDiamond, style::kNope) +
           layer_mark_commands(sliding_, "sliding layers", 0.35, style::kSquare, style::kAccent);
  }

  TooltipArea tooltip_area(const HeadMapCell& cell, const std::string& text) const {
    const double wide = (style::kColumn - kLeft - right_) / static_cast<double>(layers_);
    const double tall = tall_ / static_cast<double>(heads_);
    const double left = kLeft + static_cast<double>(cell.layer) * wide;
    const double below = bottom_ + static_cast<double>(cell.head) * tall;
    return {left / style::kColumn,
            1 - (below + tall) / height(),
            (left + wide) / style::kColumn,
            1 - below / height(),
            fmt::format("layer {}, head {}: {}{}{}", cell.layer, cell.head, text,
                        cell.nope ? " (NoPE)" : "", cell.sliding ? " (sliding)" : ""),
            cell.layer,
            cell.head};
  }

 private:
  static constexpr double kLeft = 0.42;   // inches
  static constexpr double kTitle = 0.14;  // inches for the name of the model

  // Returns gnuplot commands that mark `layers` above the map and write `name` at `x` (0 to 1).
  std::string layer_mark_commands(const std::set<std::int64_t>& layers, const char* name, double x,
                                  int point_type, const char* colour) const {
    std::string text;
    for (const auto layer : layers)
      text += fmt::format(
          "set label '' at first {}, screen {:.4f}/height point pt {} ps 0.4*mark lc rgb '{}'\n",
          layer, plot_top() + 0.06, point_type, colour);
    if (layers.empty()) return text;
    return text +
           fmt::format("set label '{}' at graph {}, screen {:.4f}/height font ',{}' tc rgb '{}'\n",
                       name, x, plot_top() + 0.14, style::kPhase, colour);
  }

  std::string title_;
  double right_;
  double bottom_ = 0;
  double tall_ = 0;
  double top_ = 0;
  std::int64_t layers_ = 1;
  std::int64_t heads_ = 1;
  std::set<std::int64_t> nope_;
  std::set<std::int64_t> sliding_;
};

// A thin border distinguishes a head with a pale colour from a head that was not captured.
std::string map_cells_clause(const std::string& x, const std::string& colour) {
  return fmt::format(
      "data using ({}):2:($1 - 0.5):($1 + 0.5):($2 - 0.5):($2 + 0.5){} with boxxyerror fillstyle "
      "solid border lc rgb '#D8D8D8' lw 0.3",
      x, colour);
}

constexpr double kColourBar = 0.62;  // inches beside the map for the colour bar

// Returns gnuplot commands for the palette and the colour range. `scale` is an entry of the YAML
// key `scales`; the gnuplot script multiplies values by `factor`.
std::string map_palette(const Json& scale, const std::vector<double>& values, double factor) {
  const bool around_zero = scale.at("around_zero");
  double top = 1;
  // Clip at the 98th percentile: a few outlying heads would leave all other heads white.
  if (!scale.contains("step"))
    top = around_zero ? quantile_of(absolute_values(values), 0.98) * factor
                      : std::ranges::max(values);
  if (!(top > 0)) top = 1;
  return gnuplot_palette_command(around_zero ? style::kAroundZero : style::kCividis) +
         fmt::format("set cbrange [{}:{}]\nset cbtics {}\n", around_zero ? -top : 0, top,
                     scale.value("step", nice_tick_step(top, around_zero ? 2 : 4)));
}

constexpr std::size_t kCollageHeads = 12;

// Range [first, last) of the rows of one head in the table head_scatter.
struct RowSpan {
  std::size_t first;
  std::size_t last;
};

// Returns the heads of the last run that have values on both axes. Rows of a head are contiguous.
std::vector<RowSpan> heads_of_last_run(const ResultFrame& scatter, const std::vector<double>& x,
                                       const std::vector<double>& y) {
  const auto run = std::ranges::max(scatter.run_indices());
  std::vector<RowSpan> ranges;
  for (std::size_t row = 0; row < scatter.row_count(); ++row) {
    if (scatter.run_indices()[row] != run || std::isnan(x[row]) || std::isnan(y[row])) continue;
    if (ranges.empty() || ranges.back().last != row ||
        scatter.head_at(ranges.back().first) != scatter.head_at(row))
      ranges.push_back({row, row});
    ranges.back().last = row + 1;
  }
  return ranges;
}

// Returns `count` heads spread over layers and over head numbers: one head from each of `count`
// equal strata. The position inside a stratum follows the golden ratio (a low-discrepancy
// sequence); a fixed position would show the same head number of every second layer.
std::vector<RowSpan> select_evenly_spread_heads(const std::vector<RowSpan>& all,
                                                std::size_t count) {
  if (all.size() <= count) return all;
  constexpr double kGoldenRatio = 0.6180339887498949;
  std::vector<RowSpan> chosen;
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = i * all.size() / count, end = (i + 1) * all.size() / count;
    const auto size = to_double(end - begin);
    const double place = std::fmod(static_cast<double>(i + 1) * kGoldenRatio, 1.0);
    chosen.push_back(all[begin + static_cast<std::size_t>(place * size)]);
  }
  return chosen;
}

using RowInPanel = std::pair<std::int64_t, std::size_t>;  // (panel, row of the plotted table)

// Returns the CSV of scatter points. The shade of a point is its position / largest position.
// `panel_column`: name of the column that holds the panel number.
Table shaded_points_table(const AnalysisResults& results, const ResultFrame& frame,
                          const std::vector<RowInPanel>& rows, const std::string& panel_column,
                          const std::string& x, const std::string& y) {
  const auto& positions = frame.integer_column("position");
  std::int64_t last = 1;
  for (const auto& [panel, row] : rows) last = std::max(last, positions[row]);
  Table table = empty_table(
      fmt::format("integer {}, integer key, real shade, real {}, real {}, integer position, "
                  "integer layer, integer head, text model",
                  panel_column, x, y));
  for (const auto& [panel, row] : rows)
    table.add({panel, std::int64_t{frame.text_column("side")[row] == "k"},
               static_cast<double>(positions[row]) / static_cast<double>(last),
               frame.real_column(x)[row], frame.real_column(y)[row], positions[row],
               frame.nullable_integer_column("layer")[row], frame.head_column()[row],
               results.run_label(frame.run_indices()[row])});
  return table;
}

double scatter_tick_step(const std::vector<double>& values, const RowSpan& head) {
  const auto [low, high] =
      std::ranges::minmax(std::span(values).subspan(head.first, head.last - head.first));
  return nice_tick_step(high - low, 3);
}

void draw_plane_panels(const AnalysisResults& results, const FigureKind& kind,
                       const HeadOfRun& head, Figure& figure) {
  std::map<std::int64_t, double> sizes;  // largest absolute coordinate of each plane
  const auto& planes = figure.data.find("plane")->integers;
  for (std::size_t row = 0; row < planes.size(); ++row)
    for (const char* axis : {"x", "y"}) {
      double& size = sizes[planes[row]];
      size = std::max(size, std::fabs(figure.data.find(axis)->reals[row]));
    }
  std::map<std::int64_t, std::string> titles;  // by plane: "3: 12.0 %, 0.98"
  const ResultFrame* complement =
      results.has_table("complement") ? &results.frame("complement") : nullptr;
  for (std::size_t row = 0; complement && row < complement->row_count(); ++row)
    if (const auto plane = complement->integer_column("pair")[row];
        complement->head_at(row) == head)
      titles[plane] = fmt::format("{}: {:.1f} %, {:.2f}", plane,
                                  100 * complement->real_column("variance_share")[row],
                                  complement->real_column("angle_r")[row]);
  auto options = grid_options(kind, sizes.size());
  options.functions = kind.format("functions");
  const PanelGrid grid(options);
  auto next = sizes.begin();
  grid.draw(
      figure,
      kind.format("legend", fmt::arg("y", 1 - 0.09 / grid.height_inches())) +
          fmt::format("unset grid\nunset tics\nset border 15 lw 0.4 lc rgb '{}'\n", style::kFaint),
      [&](std::size_t) -> PanelGrid::Panel {
        const auto [plane, size] = *next++;
        const auto title = titles.find(plane);
        const double edge = size > 0 ? 1.05 * size : 1;
        return {title == titles.end() ? fmt::format("plane {}", plane) : title->second,
                fmt::format("set xrange [{0}:{1}]\nset yrange [{0}:{1}]\n", -edge, edge) +
                    kind.format("points", fmt::arg("panel", plane), fmt::arg("size", 0.24))};
      });
}

}  // namespace

Figure draw_heatmap_of_heads(const AnalysisResults& results, const FigureKind& kind) {
  const auto& table = kind.tables.front();
  const ResultFrame& frame = results.frame(table);
  const auto name = kind.text("column");
  if (!frame.has_column(name))
    return make_empty_figure(fmt::format("the {} do not have {}",
                                         table == "attention" ? "statistics" : "results", name));
  const auto& column = frame.real_column(name);
  const bool absolute = kind.keys.value("absolute", false);
  std::vector<HeadMapCell> cells;
  std::vector<double> values;
  for (std::size_t row = 0; row < frame.row_count(); ++row) {
    if (std::isnan(column[row]) || !frame.is_first_component(row)) continue;
    values.push_back(absolute ? std::fabs(column[row]) : column[row]);
    cells.push_back(make_map_cell(frame, row, values.back()));
  }
  if (cells.empty()) return {};
  const auto unit = kind.text("unit");
  const auto scaled = unit.empty() ? AxisUnit() : choose_axis_unit({values}, unit);
  const HeadMapLayout layout(results, cells, kColourBar, 0);
  Figure figure;
  figure.column_group = kind.text("question");
  figure.data = empty_table(fmt::format("integer layer, integer head, real {}{}, integer nope",
                                        absolute ? "abs_" : "", name));
  const auto shown = absolute ? "|" + name + "|" : name;
  for (const auto& cell : cells) {
    figure.data.add({cell.layer, cell.head, cell.value, std::int64_t{cell.nope}});
    figure.hover.push_back(layout.tooltip_area(
        cell, fmt::format("{} {:.4g}{}", shown, cell.value, unit.empty() ? "" : " " + unit)));
  }
  const Json scale = kind.keys.at("scales").at(kind.text("scale"));
  figure.height = layout.height();
  figure.script = layout.axis_commands(kind) + map_palette(scale, values, scaled.scale) +
                  kind.format("colour_bar", fmt::arg("left", style::kColumn - kColourBar + 0.09),
                              fmt::arg("bottom", layout.plot_bottom()),
                              fmt::arg("height", layout.plot_top() - layout.plot_bottom()),
                              fmt::arg("title", kind.text("label") +
                                                    (unit.empty() ? "" : " (" + scaled.text + ")")),
                              fmt::arg("right", style::kColumn - 0.08)) +
                  "plot " + map_cells_clause("$1", fmt::format(":($3 * {})", scaled.scale)) +
                  " linecolor palette\n";
  figure.caption = fmt::format(
      "{} One cell per head of '{}', layers from left to right; heads that were not captured stay "
      "blank. {}",
      kind.text("caption"), results.run_title(), scale.value("caption", ""));
  return figure;
}

Figure draw_class_map(const AnalysisResults& results, const FigureKind& kind) {
  const auto column = kind.text("column");
  const ResultFrame& frame = results.frame("taxonomy");
  if (!frame.has_column(column))
    return make_empty_figure(fmt::format("the results do not have {}", column));
  const auto& classes = frame.text_column(column);
  std::vector<HeadMapCell> cells;
  for (std::size_t row = 0; row < frame.row_count(); ++row)
    for (std::size_t code = 0; code < std::size(style::kClasses); ++code)
      if (classes[row] == style::kClasses[code].name)
        cells.push_back(make_map_cell(frame, row, static_cast<double>(code)));
  std::vector<LegendEntry> entries;
  for (const auto& c : style::kClasses) entries.push_back({c.title, c.colour, style::kSquare});
  const Legend legend(entries, style::kColumn);
  const HeadMapLayout layout(results, cells, 0.1, legend.height_inches());
  Figure figure;
  figure.data = empty_table(
      fmt::format("integer layer, integer head, integer code, integer nope, text {}", column));
  for (const auto& cell : cells) {
    const auto& c = style::kClasses[static_cast<std::size_t>(cell.value)];
    figure.data.add({cell.layer, cell.head, static_cast<std::int64_t>(cell.value),
                     std::int64_t{cell.nope}, std::string(c.name)});
    figure.hover.push_back(layout.tooltip_area(cell, c.title));
  }
  figure.height = layout.height();
  figure.script = layout.axis_commands(kind) + legend.label_commands() + "plot \\\n";
  for (std::size_t code = 0; code < std::size(style::kClasses); ++code)
    figure.script += "  " + map_cells_clause(fmt::format("$3 == {} ? $1 : NaN", code), "") +
                     fmt::format(" lc rgb '{}'{}\n", style::kClasses[code].colour,
                                 code + 1 < std::size(style::kClasses) ? ", \\" : "");
  figure.caption = kind.format("caption", kind.text("basis"), taxonomy_bounds_text(results),
                               results.run_title());
  return figure;
}

Figure draw_collage(const AnalysisResults& results, const FigureKind& kind) {
  const ResultFrame& scatter = results.frame("head_scatter");
  const auto fill_in_components = [&](const char* key) {
    return kind.format(key, results.draw_options().components[0],
                       results.draw_options().components[1]);
  };
  const std::string x = fill_in_components("x");
  const std::string y = fill_in_components("y");
  for (const auto& axis : {x, y})
    if (!scatter.has_column(axis))
      return make_empty_figure(fmt::format(
          "head_scatter.parquet has no column {}; analyse again with as many --components", axis));
  const auto all = heads_of_last_run(scatter, scatter.real_column(x), scatter.real_column(y));
  const auto heads = select_evenly_spread_heads(all, kCollageHeads);
  if (heads.empty()) return {};
  Figure figure;
  figure.title = fill_in_components("title");
  std::vector<RowInPanel> rows;
  for (std::size_t i = 0; i < heads.size(); ++i)
    for (auto row = heads[i].first; row < heads[i].last; ++row)
      rows.push_back({as_integer_cell(i), row});
  figure.data = shaded_points_table(results, scatter, rows, "panel", x, y);
  auto options = grid_options(kind, heads.size());
  options.x_label = fill_in_components("x_label");
  options.y_label = fill_in_components("y_label");
  options.functions = kind.format("functions");
  const PanelGrid grid(options);
  grid.draw(figure,
            kind.format("legend", fmt::arg("y", 1 - 0.09 / grid.height_inches())) +
                "unset grid\nset offsets graph 0.05, graph 0.05, graph 0.05, graph 0.05\n",
            [&](std::size_t i) -> PanelGrid::Panel {
              const auto [run, layer, head] = scatter.head_at(heads[i].first);
              return {fmt::format("layer {}, head {}{}", layer, head,
                                  scatter.is_nope(heads[i].first) ? " (NoPE)" : ""),
                      fmt::format("set xtics {}\nset ytics {}\n",
                                  scatter_tick_step(scatter.real_column(x), heads[i]),
                                  scatter_tick_step(scatter.real_column(y), heads[i])) +
                          kind.format("points", fmt::arg("panel", i), fmt::arg("size", 0.28))};
            });
  figure.caption = fmt::format(
      "{} Blue circles are queries, red squares keys, darker the later their position. {} heads of "
      "'{}', spread evenly over layers and head numbers; of each head the rows kept in "
      "head_scatter.parquet.",
      fill_in_components("caption"), heads.size(),
      results.run_title(scatter.run_indices()[heads.front().first]));
  return figure;
}

Figure draw_head_planes(const AnalysisResults& results, const FigureKind& kind) {
  if (!results.has_table("head_planes") || results.frame("head_planes").row_count() == 0)
    return make_empty_figure("no head's planes were kept: qkscope analyze --planes-of LAYER.HEAD");
  const ResultFrame& planes = results.frame("head_planes");
  // Use the head that the user selected, else the first head of the last run in the table.
  std::optional<HeadOfRun> head;
  for (std::size_t row = 0; row < planes.row_count(); ++row) {
    const auto here = planes.head_at(row);
    const auto& chosen = results.draw_options().head;
    if (!chosen.empty() && chosen != fmt::format("{}.{}", here.layer, here.head)) continue;
    if (!head || here.run > head->run) head = here;
  }
  if (!head)
    return make_empty_figure(
        fmt::format("no planes were kept of head {0}; analyse again with --planes-of {0}",
                    results.draw_options().head));
  Figure figure;
  std::vector<RowInPanel> rows;
  for (std::size_t row = 0; row < planes.row_count(); ++row)
    if (planes.head_at(row) == *head)
      rows.push_back({planes.nullable_integer_column("plane")[row], row});
  figure.data = shaded_points_table(results, planes, rows, "plane", "x", "y");
  draw_plane_panels(results, kind, *head, figure);
  figure.title = kind.format("title", head->layer, head->head);
  figure.caption = kind.format("caption", head->layer, head->head, results.run_title(head->run));
  return figure;
}

}  // namespace qkscope
