// One figure (data, caption and gnuplot script), the list of all figures, and functions that run
// gnuplot.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/figures/style.h"
#include "qkscope/tables.h"

namespace qkscope {

class AnalysisResults;

// A rectangle of a picture that shows a tooltip in the report. Edges are fractions of the picture's
// width and height, measured from the left and from the top.
struct HoverCell {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
  std::string text;
  std::int64_t layer = -1;  // a click opens this head; -1: not a head
  std::int64_t head = -1;
};

struct Figure {
  std::string title;
  std::string caption;            // what the figure shows and how it was computed, in sentences
  double width = style::kColumn;  // inches
  double height = style::kHeight;
  Table data;            // NAME.csv: numeric columns first, then text columns
  std::string script;    // gnuplot commands; the gnuplot variable `data` is the CSV's file name
  std::string question;  // GeometryQuestion that the figure answers; "" for other figures
  std::string missing;   // why the figure cannot be drawn; empty if it can
  std::vector<HoverCell> hover;
};

// Returns a figure without content, with the reason why it cannot be drawn. make_figure() sets the
// reason for figures without rows in `data`.
inline Figure empty_figure(std::string why) {
  Figure figure;
  figure.missing = std::move(why);
  return figure;
}

// Number of runs that a figure is meant for.
enum class RunCountRequirement {
  any,
  one,      // shows a single run, never a sweep of several
  several,  // compares runs; drawn for a single run only if the user names the figure
};

struct FigureKind {
  std::string name;
  std::vector<std::string> tables;  // required result tables; the figure is skipped without them
  std::function<Figure(const AnalysisResults& results)> make;
  RunCountRequirement runs = RunCountRequirement::any;
};

// Every figure, in the order of the report.
const std::vector<FigureKind>& figure_kinds();

// Groups of figures that are drawn alike from different table columns.
std::vector<FigureKind> head_map_kinds();            // from analyses of a capture
std::vector<FigureKind> attention_head_map_kinds();  // from statistics over every token
std::vector<FigureKind> geometry_head_map_kinds();   // columns of the geometry
std::vector<FigureKind> geometry_over_runs_kinds();  // one figure per question
std::vector<FigureKind> layer_heatmap_kinds();
std::vector<FigureKind> collage_kinds();
// Returns a figure that shows table columns over the runs of a sweep, by its name.
FigureKind find_trajectory_figure(std::string_view name);

// Figures with code of their own.
using MakeFigure = Figure(const AnalysisResults& results);
MakeFigure attention_onset, class_counts, distance_by_class, explained_variance, key_channel_map,
    nope_vs_rope, taxonomy_evolution, variance_decomposition;
MakeFigure bias_vs_separation, distributions, head_planes, pc_roles, rq_rk_scatter;
MakeFigure bucket_heatmap, component_weights, plasticity_heatmap, plasticity_profile;
MakeFigure attribution_bars, attribution_matrix, composition_graph, composition_over_runs,
    score_by_distance, score_by_frequency;
MakeFigure ap_drop_vs_score, bias_histogram, family_scatter;

// If gnuplot cannot be run, throws a failure error that names the package to install.
void require_gnuplot();

// Returns the content of NAME.gp: size, terminals, style and the commands of the figure. The script
// writes NAME.FORMAT for each of `formats` (svg, png, pdf) into the current folder.
std::string gnuplot_script(const std::string& name, const Figure& figure,
                           const std::vector<std::string>& formats);

// Runs `gnuplot NAME.gp` in `folder`. Throws a failure error with gnuplot's message if gnuplot
// fails.
void run_gnuplot(const std::string& folder, const std::string& name);

}  // namespace qkscope
