#include "figures/registry.h"

namespace qkscope {

const std::vector<FigureKind>& figure_kinds() {
  static const std::vector<FigureKind> kKinds = {
      {"position_signal", {"qk"}, position_signal, Runs::several},
      {"taxonomy_evolution", {"taxonomy"}, taxonomy_evolution, Runs::several},
      {"class_counts", {"taxonomy"}, class_counts, Runs::one},
      {"explained_variance", {"qk"}, explained_variance},
      {"layer_heatmap_rq", {"qk"}, layer_heatmap_rq, Runs::several},
      {"layer_heatmap_rk", {"qk"}, layer_heatmap_rk, Runs::several},
      {"layer_heatmap_rka", {"rotated"}, layer_heatmap_rka, Runs::several},
      {"layer_heatmap_bias", {"rotated"}, layer_heatmap_bias, Runs::several},
      {"head_map_class", {"taxonomy"}, head_map_class, Runs::one},
      {"head_map_rq", {"qk"}, head_map_rq, Runs::one},
      {"head_map_rk", {"qk"}, head_map_rk, Runs::one},
      {"head_map_pc0_variance", {"qk"}, head_map_pc0_variance, Runs::one},
      {"head_map_position_r", {"rotated"}, head_map_position_r, Runs::one},
      {"head_map_rka", {"rotated"}, head_map_rka, Runs::one},
      {"head_map_bias", {"rotated"}, head_map_bias, Runs::one},
      {"head_map_separation", {"rotated"}, head_map_separation, Runs::one},
      {"head_map_plane_variance", {"rotated"}, head_map_plane_variance, Runs::one},
      {"head_map_plasticity", {"head_metrics"}, head_map_plasticity, Runs::one},
      {"head_map_ap_drop", {"head_metrics"}, head_map_ap_drop, Runs::one},
      {"distributions", {}, distributions, Runs::one},
      {"rq_rk_scatter", {"qk"}, rq_rk_scatter},
      {"nope_vs_rope", {"qk", "head_metrics"}, nope_vs_rope, Runs::several},
      {"pc_roles", {"qk"}, pc_roles},
      {"qk_collage", {"head_scatter"}, qk_collage},
      {"ab_plane_collage", {"head_scatter"}, ab_plane_collage},
      {"complement_collage", {"head_scatter"}, complement_collage},
      {"head_planes", {}, head_planes},
      {"rotation_trajectory", {"rotated"}, rotation_trajectory, Runs::several},
      {"bias_decomposition", {"rotated"}, bias_decomposition, Runs::several},
      {"plasticity_trajectory", {"head_metrics", "rotated"}, plasticity_trajectory, Runs::several},
      {"plasticity_profile", {"head_profile"}, plasticity_profile},
      {"plasticity_heatmap", {"pair_heatmap"}, plasticity_heatmap},
      {"bucket_heatmap", {"head_bucket_plasticity"}, bucket_heatmap},
      {"component_weights", {"head_component_weights"}, component_weights},
      {"drift_correlations", {"rotated"}, drift_correlations, Runs::several},
      {"variance_decomposition", {"rotated"}, variance_decomposition, Runs::several},
      {"bias_strength", {"rotated"}, bias_strength, Runs::several},
      {"slope_ratio", {"rotated"}, slope_ratio, Runs::several},
      {"bias_vs_separation", {"rotated"}, bias_vs_separation},
      {"bias_histogram", {"rotated"}, bias_histogram, Runs::several},
      {"family_scatter", {"rotated"}, family_scatter, Runs::several},
      {"ap_drop_vs_score", {"head_metrics"}, ap_drop_vs_score, Runs::several},
  };
  return kKinds;
}

}  // namespace qkscope
