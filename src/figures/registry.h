// The list of all figures. Their sources are one file per group of figures: over_runs.cpp,
// layers.cpp, heads.cpp, collage.cpp, rotation_figures.cpp, plasticity_figures.cpp.
#pragma once

#include <vector>

#include "figures/figure.h"
#include "figures/results.h"

namespace qkscope {

struct FigureKind {
  const char* name;
  std::vector<const char*> tables;  // without these there is no such figure
  Figure (*make)(const Results& results);
};

// Every figure, in the order of the report.
const std::vector<FigureKind>& figure_kinds();

Figure position_signal(const Results& results);
Figure taxonomy_evolution(const Results& results);
Figure explained_variance(const Results& results);
Figure layer_heatmap_rq(const Results& results);
Figure layer_heatmap_rk(const Results& results);
Figure rq_rk_scatter(const Results& results);
Figure nope_vs_rope(const Results& results);
Figure pc_roles(const Results& results);
Figure qk_collage(const Results& results);
Figure ab_plane_collage(const Results& results);
Figure complement_collage(const Results& results);
Figure rotation_trajectory(const Results& results);
Figure bias_decomposition(const Results& results);
Figure plasticity_trajectory(const Results& results);
Figure plasticity_profile(const Results& results);
Figure plasticity_heatmap(const Results& results);
Figure component_weights(const Results& results);
Figure drift_correlations(const Results& results);
Figure variance_decomposition(const Results& results);
Figure bias_strength(const Results& results);
Figure slope_ratio(const Results& results);
Figure bias_vs_separation(const Results& results);

}  // namespace qkscope
