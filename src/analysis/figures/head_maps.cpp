// Heat maps of one model: one cell per head, layers from left to right.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/run_plots.h"
#include "analysis/figures/style.h"
#include "analysis/results/geometry_columns.h"

namespace qkscope {
namespace {

struct MapCell {
  std::int64_t layer;
  std::int64_t head;
  double value;
  bool nope;
  bool sliding;
};

MapCell map_cell(const ResultFrame& frame, std::size_t row, double value) {
  return {frame.nullable_integer_column("layer")[row], frame.head_column()[row], value,
          frame.is_nope(row), frame.attention_kind(row).starts_with("sliding")};
}

// Placement of the head map in the figure. Cells are square if the page is wide enough.
class MapLayout {
 public:
  MapLayout(const AnalysisResults& results, const std::vector<MapCell>& cells, double right,
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

  std::string axes(const FigureKind& kind) const {
    const auto layers = static_cast<double>(layers_);
    const auto heads = static_cast<double>(heads_);
    return margin_commands(kLeft, style::kColumn - right_, bottom_, bottom_ + tall_) +
           kind.fill("axes", fmt::arg("right", layers - 0.5), fmt::arg("top", heads - 0.5),
                     fmt::arg("x_step", integer_tick_step(layers, 6)),
                     fmt::arg("y_step", integer_tick_step(heads, 6)),
                     fmt::arg("below", bottom_ - 0.24), fmt::arg("title", title_),
                     fmt::arg("above", height() - 0.09)) +
           layer_marks(nope_, "NoPE layers", 0, style::kDiamond, style::kNope) +
           layer_marks(sliding_, "sliding layers", 0.35, style::kSquare, style::kAccent);
  }

  HoverCell hover(const MapCell& cell, const std::string& text) const {
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

  // Returns gnuplot commands that draw a marker above the column of each layer in `layers`, and the
  // label `name` at fraction `x` of the map's width.
  std::string layer_marks(const std::set<std::int64_t>& layers, const char* name, double x,
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

// Cells have a thin border, so that a pale head differs from a head that was not captured.
std::string plot_map_cells(const std::string& x, const std::string& colour) {
  return fmt::format(
      "data using ({}):2:($1 - 0.5):($1 + 0.5):($2 - 0.5):($2 + 0.5){} with boxxyerror fillstyle "
      "solid border lc rgb '#D8D8D8' lw 0.3",
      x, colour);
}

constexpr double kColourBar = 0.62;  // inches beside the map for the colour bar

std::string colour_bar(const FigureKind& kind, const MapLayout& layout, const std::string& title) {
  return kind.fill("colour_bar", fmt::arg("left", style::kColumn - kColourBar + 0.09),
                   fmt::arg("bottom", layout.plot_bottom()),
                   fmt::arg("height", layout.plot_top() - layout.plot_bottom()),
                   fmt::arg("title", title), fmt::arg("right", style::kColumn - 0.08));
}

struct MapColours {
  std::string script;   // range and palette
  std::string caption;  // sentence about the colours
};

// Returns the colour range of a head map. The gnuplot script multiplies values by `scale`.
MapColours map_colours(const std::string& kind, const std::vector<double>& values, double scale) {
  if (kind == "to_one")
    return {gnuplot_palette_command(style::kCividis) + "set cbrange [0:1]\nset cbtics 0.25\n",
            "Colours run from 0 to 1."};
  if (kind == "signed_to_one")
    return {gnuplot_palette_command(style::kAroundZero) + "set cbrange [-1:1]\nset cbtics 0.5\n",
            "Colours run from -1 (blue) over 0 (white) to 1 (red)."};
  if (kind == "to_largest") {
    const double largest = std::ranges::max(values);
    const double top = largest > 0 ? largest : 1;
    return {gnuplot_palette_command(style::kCividis) +
                fmt::format("set cbrange [0:{}]\nset cbtics {}\n", top, nice_tick_step(top, 4)),
            "Colours run from 0 to the largest head."};
  }
  // Clip at the 98th percentile: a few outlying heads would leave all other heads white.
  const double far = quantile_of(absolute_values(values), 0.98) * scale;
  const double top = far > 0 ? far : 1;
  return {
      gnuplot_palette_command(style::kAroundZero) +
          fmt::format("set cbrange [{}:{}]\nset cbtics {}\n", -top, top, nice_tick_step(top, 2)),
      "White is 0, red above, blue below; the 2 % of heads farthest from 0 share the last "
      "colour."};
}

}  // namespace

Figure heatmap_of_heads(const AnalysisResults& results, const FigureKind& kind) {
  const auto& table = kind.tables.front();
  const ResultFrame& frame = results.frame(table);
  const auto name = kind.text("column");
  if (!frame.has(name))
    return empty_figure(fmt::format("the {} do not have {}",
                                    table == "attention" ? "statistics" : "results", name));
  const auto& column = frame.real_column(name);
  const bool absolute = kind.keys.value("absolute", false);
  std::vector<MapCell> cells;
  std::vector<double> values;
  for (std::size_t row = 0; row < frame.rows(); ++row) {
    if (std::isnan(column[row]) || !frame.is_first_component(row)) continue;
    values.push_back(absolute ? std::fabs(column[row]) : column[row]);
    cells.push_back(map_cell(frame, row, values.back()));
  }
  if (cells.empty()) return {};
  const auto unit = kind.text("unit");
  const auto scaled = unit.empty() ? AxisUnit() : choose_axis_unit({values}, unit);
  const MapLayout layout(results, cells, kColourBar, 0);
  Figure figure;
  figure.question = kind.text("question");
  figure.data = empty_table(fmt::format("integer layer, integer head, real {}{}, integer nope",
                                        absolute ? "abs_" : "", name));
  const auto shown = absolute ? "|" + name + "|" : name;
  for (const auto& cell : cells) {
    figure.data.add({cell.layer, cell.head, cell.value, std::int64_t{cell.nope}});
    figure.hover.push_back(layout.hover(
        cell, fmt::format("{} {:.4g}{}", shown, cell.value, unit.empty() ? "" : " " + unit)));
  }
  const auto colours = map_colours(kind.text("scale"), values, scaled.scale);
  figure.height = layout.height();
  figure.script =
      layout.axes(kind) + colours.script +
      colour_bar(kind, layout,
                 kind.text("label") + (unit.empty() ? "" : fmt::format(" ({})", scaled.text))) +
      "plot " + plot_map_cells("$1", fmt::format(":($3 * {})", scaled.scale)) +
      " linecolor palette\n";
  figure.caption = fmt::format(
      "{} One cell per head of '{}', layers from left to right; heads that were not captured stay "
      "blank. {}",
      kind.text("caption"), results.run_title(), colours.caption);
  return figure;
}

Figure class_map(const AnalysisResults& results, const FigureKind& kind) {
  const auto column = kind.text("column");
  const ResultFrame& frame = results.frame("taxonomy");
  if (!frame.has(column)) return empty_figure(fmt::format("the results do not have {}", column));
  const auto& classes = frame.text_column(column);
  std::vector<MapCell> cells;
  for (std::size_t row = 0; row < frame.rows(); ++row)
    for (std::size_t code = 0; code < std::size(style::kClasses); ++code)
      if (classes[row] == style::kClasses[code].name)
        cells.push_back(map_cell(frame, row, static_cast<double>(code)));
  std::vector<LegendEntry> entries;
  for (const auto& c : style::kClasses) entries.push_back({c.title, c.colour, style::kSquare});
  const Legend legend(entries, style::kColumn);
  const MapLayout layout(results, cells, 0.1, legend.height());
  Figure figure;
  figure.data = empty_table(
      fmt::format("integer layer, integer head, integer code, integer nope, text {}", column));
  for (const auto& cell : cells) {
    const auto& c = style::kClasses[static_cast<std::size_t>(cell.value)];
    figure.data.add({cell.layer, cell.head, static_cast<std::int64_t>(cell.value),
                     std::int64_t{cell.nope}, std::string(c.name)});
    figure.hover.push_back(layout.hover(cell, c.title));
  }
  figure.height = layout.height();
  figure.script = layout.axes(kind) + legend.label_commands() + "plot \\\n";
  for (std::size_t code = 0; code < std::size(style::kClasses); ++code)
    figure.script += "  " + plot_map_cells(fmt::format("$3 == {} ? $1 : NaN", code), "") +
                     fmt::format(" lc rgb '{}'{}\n", style::kClasses[code].colour,
                                 code + 1 < std::size(style::kClasses) ? ", \\" : "");
  figure.caption =
      kind.fill("caption", kind.text("basis"), taxonomy_bounds_text(results), results.run_title());
  return figure;
}

}  // namespace qkscope
