// The list of all figures. Their sources are one file per group of figures: over_runs.cpp,
// layers.cpp, heads.cpp, head_maps.cpp, attention_figures.cpp, class_counts.cpp, distributions.cpp,
// families.cpp, scores.cpp, collage.cpp, head_planes.cpp, rotation_figures.cpp,
// plasticity_figures.cpp, plasticity_heatmaps.cpp.
#pragma once

#include <vector>

#include "analysis/figures/figure.h"
#include "analysis/figures/results.h"

namespace qkscope {

// How many runs a figure is about.
enum class Runs {
  any,
  one,      // shows what there is no room for beside other runs
  several,  // compares runs: of a single one it is drawn only when it is asked for by name
};

struct FigureKind {
  const char* name;
  std::vector<const char*> tables;  // without these there is no such figure
  Figure (*make)(const Results& results);
  Runs runs = Runs::any;
};

// Every figure, in the order of the report.
const std::vector<FigureKind>& figure_kinds();

Figure position_signal(const Results& results);
Figure taxonomy_evolution(const Results& results);
Figure class_counts(const Results& results);
Figure explained_variance(const Results& results);
Figure layer_heatmap_rq(const Results& results);
Figure layer_heatmap_rk(const Results& results);
Figure layer_heatmap_rka(const Results& results);
Figure layer_heatmap_bias(const Results& results);
Figure head_map_class(const Results& results);
Figure head_map_rq(const Results& results);
Figure head_map_rk(const Results& results);
Figure head_map_pc0_variance(const Results& results);
Figure head_map_position_r(const Results& results);
Figure head_map_rka(const Results& results);
Figure head_map_bias(const Results& results);
Figure head_map_separation(const Results& results);
Figure head_map_plane_variance(const Results& results);
Figure head_map_plasticity(const Results& results);
Figure head_map_ap_drop(const Results& results);
Figure distributions(const Results& results);
Figure rq_rk_scatter(const Results& results);
Figure nope_vs_rope(const Results& results);
Figure pc_roles(const Results& results);
Figure qk_collage(const Results& results);
Figure ab_plane_collage(const Results& results);
Figure complement_collage(const Results& results);
Figure head_planes(const Results& results);
Figure rotation_trajectory(const Results& results);
Figure bias_decomposition(const Results& results);
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
Figure head_map_sink(const Results& results);
Figure head_map_previous(const Results& results);
Figure head_map_induction(const Results& results);
Figure head_map_duplicate(const Results& results);
Figure head_map_pattern(const Results& results);
Figure head_map_entropy(const Results& results);
Figure head_map_distance(const Results& results);
Figure head_map_effective_keys(const Results& results);
Figure distance_by_class(const Results& results);
Figure key_channel_map(const Results& results);

}  // namespace qkscope
