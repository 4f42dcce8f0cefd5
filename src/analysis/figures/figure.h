// Declares figures, each with data, caption and gnuplot script; lists them all and runs gnuplot.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "analysis/figures/style.h"
#include "base/io/json.h"
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
  std::string name;  // as in figures.yaml
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

// Number of runs that a figure can show.
enum class RunCountRequirement {
  any,
  one,      // shows a single run, never a sweep of several
  several,  // compares runs; drawn for a single run only if the user names the figure
};

struct FigureKind;
using DrawFigure = Figure(const AnalysisResults& results, const FigureKind& kind);

// One entry of figures.yaml.
struct FigureKind {
  std::string name;
  std::vector<std::string> tables;  // required result tables; the figure is skipped without them
  RunCountRequirement runs = RunCountRequirement::any;
  DrawFigure* draw = nullptr;  // may leave name, title and caption to make_figure()
  Json keys;

  // Returns the value of a key in the figure's YAML entry, or "" if the key is missing.
  std::string text(const char* key) const { return keys.value(key, ""); }
  // Returns the value of a key with its placeholders replaced: {} by `arguments` in order, {name}
  // by fmt::arg("name", value) or by a constant from style.h. The colours {rope}, {nope} and
  // {query_early} to {key_late} are inserted without '#'.
  template <typename... Arguments>
  std::string fill(const char* key, const Arguments&... arguments) const {
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

// Drawing functions, which figures.yaml refers to by name. X is a macro that is applied to each.
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
#define DECLARE(function) DrawFigure function;
QKSCOPE_DRAWING_FUNCTIONS(DECLARE)
#undef DECLARE

// If gnuplot cannot be run, throws a failure error that names the package to install.
void require_gnuplot();

// Returns the content of NAME.gp: size, terminals, style and the commands of the figure. The script
// writes NAME.FORMAT for each of `formats` (svg, png, pdf) into the current folder.
std::string gnuplot_script(const Figure& figure, const std::vector<std::string>& formats);

// Runs `gnuplot NAME.gp` in `folder`. Throws a failure error with gnuplot's message if it fails.
void run_gnuplot(const std::string& folder, const std::string& name);

}  // namespace qkscope
