// Figures (data, caption, gnuplot script), the list of all figures, and functions that run gnuplot.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/io/json.h"
#include "qkscope/tables.h"

namespace qkscope {

namespace style {  // fonts, sizes and colours of all figures

// Widths in inches: a single figure fits one column of a two-column paper, a panel grid the page.
inline constexpr double kColumn = 3.4;
inline constexpr double kPage = 7.0;
inline constexpr double kHeight = 2.45;
inline constexpr int kDotsPerInch = 300;  // resolution of PNG files

inline constexpr char kFont[] = "Liberation Sans";
inline constexpr double kFontSize = 8;  // points
inline constexpr double kLabel = 7.5;   // axes of panels
inline constexpr double kSmall = 7;     // ticks, keys, titles of panels
inline constexpr double kTiny = 6.2;    // ticks of small panels
inline constexpr double kPhase = 6;     // names of phases
inline constexpr double kNote = 5.2;    // names of single heads

// Colours differ in lightness too, for colour-blind readers (palettes of Okabe and Ito, and Tol).
inline constexpr char kQuery[] = "#0072B2";
inline constexpr char kKey[] = "#CC3311";
inline constexpr char kRope[] = "#0072B2";
inline constexpr char kNope[] = "#E69F00";
inline constexpr char kAccent[] = "#009E73";
inline constexpr char kInk[] = "#333333";
inline constexpr char kFaint[] = "#BBBBBB";
inline constexpr char kHair[] = "#E4E4E4";

struct HeadClassStyle {
  const char* name;  // as in taxonomy.csv
  const char* title;
  const char* colour;
};
inline constexpr HeadClassStyle kClasses[] = {
    {"position_dominated", "position-dominated", "#0072B2"},
    {"q_positional", "Q-positional", "#332288"},
    {"k_positional", "K-positional", "#EE99BB"},
    {"content_focused", "content-focused", "#009E73"},
    {"mixed", "mixed", "#BBBBBB"}};

// End points of the colour gradients that encode position, from early to late.
inline constexpr char kQueryEarly[] = "#BFD7EA";
inline constexpr char kQueryLate[] = "#08306B";
inline constexpr char kKeyEarly[] = "#FBC4B4";
inline constexpr char kKeyLate[] = "#7F0A0A";

// Colour scales of heat maps: evenly spaced colours, from low to high values.
inline constexpr const char* kBlues[] = {"#F4F8FC", "#9CC3E0", "#3B82BD", "#08306B"};
inline constexpr const char* kReds[] = {"#FDF5F2", "#F6B09A", "#DC5A42", "#7F0A0A"};
inline constexpr const char* kGreens[] = {"#F4FAF7", "#93D2BC", "#2E9E7D", "#00402E"};
// Cividis: perceptually uniform and readable with colour vision deficiency.
inline constexpr const char* kCividis[] = {"#00204D", "#414D6B", "#7C7B78", "#BCAF6F", "#FFEA46"};
// Diverging scale: blue below zero, white at zero, red above.
inline constexpr const char* kAroundZero[] = {"#2166AC", "#92C5DE", "#F7F7F7", "#F4A582",
                                              "#B2182B"};
// Colours of model families, in order of appearance.
inline constexpr const char* kFamilies[] = {"#0072B2", "#E69F00", "#009E73", "#CC79A7",
                                            "#882255", "#56B4E9", "#999933", "#333333"};

// gnuplot's point types: filled circle, filled square, filled diamond.
inline constexpr int kCircle = 7;
inline constexpr int kSquare = 5;
inline constexpr int kDiamond = 13;
inline constexpr int kFamilyPoints[] = {7, 5, 13, 9, 11, 15};  // also two triangles and a pentagon

}  // namespace style

class AnalysisResults;

// A rectangle of a picture that shows a tooltip in the report. Edges are fractions of the picture's
// width and height, measured from the left and from the top.
struct TooltipArea {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
  std::string text;
  std::int64_t layer = -1;  // a click opens this head; -1: not a head
  std::int64_t head = -1;
};

struct Figure {
  std::string name;  // as in figures.yaml
  std::string title;
  std::string caption;            // what the figure shows and how it was computed, in sentences
  double width = style::kColumn;  // inches
  double height = style::kHeight;
  Table data;                // NAME.csv: numeric columns first, then text columns
  std::string script;        // gnuplot commands; the gnuplot variable `data` is the CSV's file name
  std::string column_group;  // name of the GeometryColumnGroup that the figure shows, or ""
  std::string missing;       // why the figure cannot be drawn; empty if it can
  std::vector<TooltipArea> hover;
};

// Returns an empty figure. `why`: the reason why it cannot be drawn; if "", make_figure() sets a
// reason, as for every figure without rows in `data`.
inline Figure make_empty_figure(std::string why) {
  Figure figure;
  figure.missing = std::move(why);
  return figure;
}

struct FigureKind;
using FigureDrawer = Figure(const AnalysisResults& results, const FigureKind& kind);

// One entry of figures.yaml.
struct FigureKind {
  std::string name;
  std::vector<std::string> tables;  // required result tables; the figure is skipped without them
  // "one": shows a single run, never a sweep of several. "several": compares runs; drawn for a
  // single run only if the user names the figure. "": shows any number of runs.
  std::string runs;
  FigureDrawer* draw = nullptr;  // may leave name, title and caption to make_figure()
  Json keys;

  // Returns the value of a key in the figure's YAML entry, or "" if the key is missing.
  std::string text(const char* key) const { return keys.value(key, ""); }
  // Returns the value of a YAML key with its placeholders replaced: {} by `arguments` in order,
  // {name} by fmt::arg("name", value) or a style constant. The colours of layer kinds ({rope}) and
  // of gradients ({query_early}) are inserted without their leading '#'.
  template <typename... Arguments>
  std::string format(const char* key, const Arguments&... arguments) const {
    return fmt::format(fmt::runtime(text(key)), arguments..., fmt::arg("label", style::kLabel),
                       fmt::arg("small", style::kSmall), fmt::arg("tiny", style::kTiny),
                       fmt::arg("note", style::kNote), fmt::arg("query", style::kQuery),
                       fmt::arg("key", style::kKey), fmt::arg("accent", style::kAccent),
                       fmt::arg("rope", style::kRope + 1), fmt::arg("nope", style::kNope + 1),
                       fmt::arg("query_early", style::kQueryEarly + 1),
                       fmt::arg("query_late", style::kQueryLate + 1),
                       fmt::arg("key_early", style::kKeyEarly + 1),
                       fmt::arg("key_late", style::kKeyLate + 1), fmt::arg("ink", style::kInk),
                       fmt::arg("faint", style::kFaint), fmt::arg("circle", style::kCircle),
                       fmt::arg("square", style::kSquare), fmt::arg("diamond", style::kDiamond));
  }
};

// All figures, in the order of the report.
const std::vector<FigureKind>& figure_kinds();

// X macro: X(NAME) for each drawing function draw_NAME, to which figures.yaml refers by NAME.
// clang-format off
#define QKSCOPE_DRAWING_FUNCTIONS(X) \
  X(ap_drop_vs_score) X(attention_onset) X(attribution_bars) X(attribution_matrix) \
  X(bias_histogram) X(bias_vs_separation) X(bucket_heatmap) X(class_counts) X(class_map) \
  X(collage) X(component_weights) X(composition_graph) X(composition_over_runs) \
  X(distance_by_class) X(distributions) X(explained_variance) X(family_scatter) \
  X(geometry_over_runs) X(heatmap_of_heads) X(head_planes) X(key_channel_map) X(layer_heatmap) \
  X(nope_vs_rope) X(pc_roles) X(plasticity_heatmap) X(plasticity_profile) X(rq_rk_scatter) \
  X(score_curves) X(taxonomy_evolution) X(trajectory) X(variance_decomposition)
// clang-format on
#define DECLARE(name) FigureDrawer draw_##name;
QKSCOPE_DRAWING_FUNCTIONS(DECLARE)
#undef DECLARE

// If gnuplot cannot be run, throws an Error of kind failure that names the package to install.
void require_gnuplot();

// Returns the content of NAME.gp: size, terminals, style and the commands of the figure. The script
// writes NAME.FORMAT for each of `formats` (svg, png, pdf) into the current folder.
std::string gnuplot_script(const Figure& figure, const std::vector<std::string>& formats);

// Runs `gnuplot NAME.gp` in `folder`. Throws an Error of kind failure with gnuplot's message if it
// fails.
void run_gnuplot(const std::string& folder, const std::string& name);

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
// Returns gnuplot's `set xtics` for axis "x". If `thousands` is set, 50000 is labelled 50k.
std::string token_tick_commands(const char* axis, double step, bool thousands);
bool is_multiple_of_thousand(double step);

// Returns the estimated width in inches of a line of text at this font size in points.
double text_width_inches(std::string_view text, double points);

// Returns the gnuplot command `set palette` for equally spaced colours.
std::string gnuplot_palette_command(std::span<const char* const> colours);

// Returns gnuplot commands for the plot area. Edges are in inches from the left and lower edge.
std::string margin_commands(double left, double right, double bottom, double top);

// Plots unit squares centred at columns `x` and `y` of the CSV, coloured by the column `value`.
std::string heatmap_plot_clause(int x, int y, int value);

struct LegendEntry {
  std::string title;  // gnuplot markup
  std::string colour;
  int point_type;
};

std::vector<LegendEntry> rope_nope_legend_entries();
// Returns the legend entry of a model family. `index` determines its colour and marker.
LegendEntry family_legend_entry(std::size_t index, const std::string& title);

// Legend in centred rows. Used instead of gnuplot's key, which can cover data points.
class Legend {
 public:
  Legend(const std::vector<LegendEntry>& entries, double figure_width);
  double height_inches() const;  // 0 without entries
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
void place_plot_above_legend(Figure& figure, const Legend& legend);

// A grid of panels that share the labels of their axes.
class PanelGrid {
 public:
  struct PanelGridOptions {
    std::size_t count = 1;
    int columns = 5;    // maximum number of columns
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

  double width_inches() const { return width_; }  // of the figure
  double height_inches() const { return height_; }
  std::string legend_commands(const std::vector<LegendEntry>& entries) const;  // above the grid

  // Sets the figure's size and script. `settings` apply to all panels; panel(i) returns panel i.
  void draw(Figure& figure, const std::string& settings,
            const std::function<Panel(std::size_t i)>& panel) const;

  // Returns the rectangle of panel `i` as a hover cell without tooltip text.
  TooltipArea panel_tooltip_area(std::size_t i) const;

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
