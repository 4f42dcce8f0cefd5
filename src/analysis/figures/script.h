// Fragments of gnuplot scripts: text, ticks, palettes, cells, legends and grids of panels.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/figures/figure.h"

namespace qkscope {

// Returns a gnuplot string literal: markup is escaped, control characters become spaces.
std::string gnuplot_literal(const std::string& text);

// Returns the text with gnuplot markup escaped, for use inside a single-quoted string.
std::string escape_markup(std::string_view text);

// Shortens a text by replacing its middle with "…", because run names differ at the end.
std::string shorten_text(std::string_view text, std::size_t characters);

// Returns the text with control characters replaced by spaces: gnuplot reads CSV line by line.
std::string replace_control_characters(std::string_view text);

// Returns a tick step of 1, 2 or 5 times a power of ten: about `wanted` steps cover `range`.
double nice_tick_step(double range, int wanted);

// Returns the tick step for an axis of integers, such as token positions; at least 1.
double integer_tick_step(double range, int wanted);
// Returns `set xtics` for the axis "x". With `thousands`, tick labels read 50k instead of 50000.
std::string token_tick_commands(const char* axis, double step, bool thousands);
// Returns true if tick labels with this step can be written in thousands ("50k").
bool is_multiple_of_thousand(double step);

// Returns the estimated width in inches of a line of text at this font size in points.
double text_width(std::string_view text, double points);

// Returns `set palette` with the colours at even steps.
std::string gnuplot_palette_command(const std::vector<std::string>& colours);

// Returns commands that place the plot area. Edges are in inches from the left and lower edge.
std::string margin_commands(double left, double right, double bottom, double top);

// Plots unit squares centred at columns `x` and `y` of the CSV, coloured by the column `value`.
std::string plot_heatmap_cells(int x, int y, int value);

struct LegendEntry {
  std::string title;  // gnuplot markup
  std::string colour;
  int point_type;
};

// Returns the legend entries of heads in RoPE layers and in NoPE layers.
std::vector<LegendEntry> rope_nope_legend();
// Returns the legend entry of a model family. `index` determines its colour and marker.
LegendEntry family_legend_entry(std::size_t index, const std::string& title);

// A legend in centred rows. gnuplot's own key moves with the plot and covers points.
class Legend {
 public:
  Legend(const std::vector<LegendEntry>& entries, double figure_width);
  double height() const;  // inches; 0 without entries
  // Returns gnuplot labels for the legend, `bottom` inches above the lower edge of the figure.
  std::string label_commands(double bottom = 0) const;

 private:
  struct LegendRow {
    std::vector<LegendEntry> entries;
    double width = 0;  // inches
  };
  double figure_width_;
  std::vector<LegendRow> rows_;
};

// Sets the height and begins the script of a figure with a plot above a legend.
void place_above_legend(Figure& figure, const Legend& legend);

// A grid of panels that share the labels of their axes.
class PanelGrid {
 public:
  struct PanelGridOptions {
    std::size_t count = 1;
    int columns = 5;    // at most
    double aspect = 1;  // height of a panel over its width
    double top = 0.25;  // margins around the grid in inches
    double right = 0.08;
    double left = 0.46;
    std::string y_format = "%h";
    bool own_ranges = false;   // each panel has its own axis ranges and tick labels
    std::string x_label = {};  // gnuplot markup
    std::string y_label = {};
    std::string functions = {};         // gnuplot functions that the panels call
    std::size_t title_characters = 30;  // longer titles of panels are shortened
  };
  struct Panel {
    std::string title;
    std::string commands;  // settings and the plot command
  };

  explicit PanelGrid(PanelGridOptions options);

  double width() const { return width_; }  // of the figure, in inches
  double height() const { return height_; }
  std::string legend(const std::vector<LegendEntry>& entries) const;  // above the grid

  // Sets size and script of the figure. `settings` apply to all panels; panel(i) draws panel i.
  void draw(Figure& figure, const std::string& settings,
            const std::function<Panel(std::size_t i)>& panel) const;

  // Returns the rectangle of panel `i` as a hover cell without tooltip text.
  HoverCell panel_hover_cell(std::size_t i) const;

 private:
  PanelGridOptions options_;
  int count_;
  int columns_;
  int rows_;
  double bottom_ = 0.42;
  double gap_x_ = 0.08;
  double gap_y_ = 0.2;
  double panel_width_ = 0;
  double width_ = 0;
  double height_ = 0;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PanelGrid::PanelGridOptions, count, columns, aspect,
                                                top, right, left, y_format, own_ranges, x_label,
                                                y_label, functions, title_characters)

// Returns the options for a grid of `count` panels, read from the figure's YAML key `grid`.
PanelGrid::PanelGridOptions grid_options(const FigureKind& kind, std::size_t count);

}  // namespace qkscope
