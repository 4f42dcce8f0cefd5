#include "figures/registry.h"

namespace qkscope {

const std::vector<FigureKind>& figure_kinds() {
  static const std::vector<FigureKind> kKinds = {
      {"position_signal", {"qk"}, position_signal},
      {"taxonomy_evolution", {"taxonomy"}, taxonomy_evolution},
      {"explained_variance", {"qk"}, explained_variance},
      {"layer_heatmap_rq", {"qk"}, layer_heatmap_rq},
      {"layer_heatmap_rk", {"qk"}, layer_heatmap_rk},
      {"rq_rk_scatter", {"qk"}, rq_rk_scatter},
      {"nope_vs_rope", {"qk", "head_metrics"}, nope_vs_rope},
      {"pc_roles", {"qk"}, pc_roles},
      {"qk_collage", {"head_scatter"}, qk_collage},
      {"ab_plane_collage", {"head_scatter"}, ab_plane_collage},
      {"complement_collage", {"head_scatter"}, complement_collage},
      {"rotation_trajectory", {"rotated"}, rotation_trajectory},
      {"bias_decomposition", {"rotated"}, bias_decomposition},
      {"plasticity_trajectory", {"head_metrics", "rotated"}, plasticity_trajectory},
      {"plasticity_profile", {"head_profile"}, plasticity_profile},
      {"plasticity_heatmap", {"pair_heatmap"}, plasticity_heatmap},
      {"component_weights", {"head_component_weights"}, component_weights},
      {"drift_correlations", {"rotated"}, drift_correlations},
      {"variance_decomposition", {"rotated"}, variance_decomposition},
      {"bias_strength", {"rotated"}, bias_strength},
      {"slope_ratio", {"rotated"}, slope_ratio},
      {"bias_vs_separation", {"rotated"}, bias_vs_separation},
  };
  return kKinds;
}

}  // namespace qkscope
