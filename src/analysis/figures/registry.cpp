#include "analysis/figures/figure.h"

namespace qkscope {

const std::vector<FigureKind>& figure_kinds() {
  static const std::vector<FigureKind> kKinds = [] {
    const std::vector<std::vector<FigureKind>> groups = {
        {find_trajectory_figure("position_signal"),
         {"taxonomy_evolution", {"taxonomy"}, taxonomy_evolution, RunCountRequirement::several},
         {"class_counts", {"taxonomy"}, class_counts, RunCountRequirement::one},
         {"explained_variance", {"qk"}, explained_variance}},
        layer_heatmap_kinds(),
        head_map_kinds(),
        {{"distributions", {}, distributions, RunCountRequirement::one},
         {"rq_rk_scatter", {"qk"}, rq_rk_scatter},
         {"nope_vs_rope", {"qk", "head_metrics"}, nope_vs_rope, RunCountRequirement::several},
         {"pc_roles", {"qk"}, pc_roles}},
        collage_kinds(),
        {{"head_planes", {}, head_planes},
         find_trajectory_figure("rotation_trajectory"),
         find_trajectory_figure("bias_decomposition"),
         find_trajectory_figure("plasticity_trajectory"),
         {"plasticity_profile", {"head_profile"}, plasticity_profile},
         {"plasticity_heatmap", {"pair_heatmap"}, plasticity_heatmap},
         {"bucket_heatmap", {"head_bucket_plasticity"}, bucket_heatmap},
         {"component_weights", {"head_component_weights"}, component_weights},
         find_trajectory_figure("drift_correlations"),
         {"variance_decomposition",
          {"rotated"},
          variance_decomposition,
          RunCountRequirement::several},
         find_trajectory_figure("bias_strength"),
         find_trajectory_figure("slope_ratio"),
         {"bias_vs_separation", {"rotated"}, bias_vs_separation},
         {"bias_histogram", {"rotated"}, bias_histogram, RunCountRequirement::several},
         {"family_scatter", {"rotated"}, family_scatter, RunCountRequirement::several},
         {"ap_drop_vs_score", {"head_metrics"}, ap_drop_vs_score, RunCountRequirement::several},
         {"attention_onset",
          {"attention", "taxonomy"},
          attention_onset,
          RunCountRequirement::several}},
        attention_head_map_kinds(),
        geometry_over_runs_kinds(),
        geometry_head_map_kinds(),
        {{"distance_by_class",
          {"distance", "taxonomy"},
          distance_by_class,
          RunCountRequirement::one},
         {"key_channel_map", {"key_channels"}, key_channel_map, RunCountRequirement::one},
         {"attribution_matrix", {"attribution", "attribution_components"}, attribution_matrix},
         {"attribution_bars", {"attribution"}, attribution_bars},
         {"score_by_frequency", {"attribution", "pairs"}, score_by_frequency},
         {"score_by_distance", {"distance_curve"}, score_by_distance},
         {"composition_graph", {"composition_components"}, composition_graph},
         {"composition_over_runs",
          {"composition_components"},
          composition_over_runs,
          RunCountRequirement::several}}};
    std::vector<FigureKind> all;
    for (const auto& group : groups) all.insert(all.end(), group.begin(), group.end());
    return all;
  }();
  return kKinds;
}

}  // namespace qkscope
