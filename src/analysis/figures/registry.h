// The list of all figures. Figures that differ only by a column are rows of a table in the file of
// their group: head maps in head_maps.cpp, maps over depth in layers.cpp, collages in
// head_points.cpp, trajectories of the rotation in rotation_figures.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analysis/figures/figure.h"
#include "analysis/figures/results.h"

namespace qkscope {

// Number of runs that a figure is meant for.
enum class Runs {
  any,
  one,      // needs the whole figure for one run
  several,  // compares runs; drawn for a single run only if asked for by name
};

struct FigureKind {
  std::string name;
  std::vector<std::string> tables;  // the figure is left out if one of these is missing or empty
  std::function<Figure(const Results& results)> make;
  Runs runs = Runs::any;
};

// Every figure, in the order of the report.
const std::vector<FigureKind>& figure_kinds();

// Figures made from tables of rows.
std::vector<FigureKind> head_maps();            // of the analyses of a capture
std::vector<FigureKind> attention_head_maps();  // of statistics over every token
std::vector<FigureKind> layer_heatmaps();
std::vector<FigureKind> collages();
std::vector<FigureKind> rotation_trajectories();

Figure position_signal(const Results& results);
Figure taxonomy_evolution(const Results& results);
Figure class_counts(const Results& results);
Figure explained_variance(const Results& results);
Figure distributions(const Results& results);
Figure rq_rk_scatter(const Results& results);
Figure nope_vs_rope(const Results& results);
Figure pc_roles(const Results& results);
Figure head_planes(const Results& results);
Figure plasticity_trajectory(const Results& results);
Figure plasticity_profile(const Results& results);
Figure plasticity_heatmap(const Results& results);
Figure bucket_heatmap(const Results& results);
Figure component_weights(const Results& results);
Figure drift_correlations(const Results& results);
Figure variance_decomposition(const Results& results);
Figure bias_strength(const Results& results);
Figure slope_ratio(const Results& results);
Figure bias_vs_separation(const Results& results);
Figure bias_histogram(const Results& results);
Figure family_scatter(const Results& results);
Figure ap_drop_vs_score(const Results& results);
Figure attention_onset(const Results& results);
Figure distance_by_class(const Results& results);
Figure key_channel_map(const Results& results);

}  // namespace qkscope
