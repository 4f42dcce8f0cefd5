#include "forward/hooks.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.h"
#include "core/text.h"

namespace qkscope {
namespace {

struct StageName {
  Stage stage;
  std::string_view name;  // after "blocks.N." for stages inside a layer
  bool in_layer;
};

constexpr std::array kNames = {
    StageName{Stage::embed, "hook_embed", false},
    StageName{Stage::resid_pre, "hook_resid_pre", true},
    StageName{Stage::ln1_normalized, "ln1.hook_normalized", true},
    StageName{Stage::q, "attn.hook_q", true},
    StageName{Stage::k, "attn.hook_k", true},
    StageName{Stage::v, "attn.hook_v", true},
    StageName{Stage::q_normed, "attn.hook_q_normed", true},
    StageName{Stage::k_normed, "attn.hook_k_normed", true},
    StageName{Stage::rot_q, "attn.hook_rot_q", true},
    StageName{Stage::rot_k, "attn.hook_rot_k", true},
    StageName{Stage::attn_scores, "attn.hook_attn_scores", true},
    StageName{Stage::pattern, "attn.hook_pattern", true},
    StageName{Stage::z, "attn.hook_z", true},
    StageName{Stage::attn_out, "hook_attn_out", true},
    StageName{Stage::resid_mid, "hook_resid_mid", true},
    StageName{Stage::ln2_normalized, "ln2.hook_normalized", true},
    StageName{Stage::mlp_pre, "mlp.hook_pre", true},
    StageName{Stage::mlp_pre_linear, "mlp.hook_pre_linear", true},
    StageName{Stage::mlp_post, "mlp.hook_post", true},
    StageName{Stage::mlp_out, "hook_mlp_out", true},
    StageName{Stage::resid_post, "hook_resid_post", true},
    StageName{Stage::final_normalized, "ln_final.hook_normalized", false},
    StageName{Stage::logits, "logits", false},
};

bool exists(const ModelConfig& model, Stage stage) {
  return model.qk_norm || (stage != Stage::q_normed && stage != Stage::k_normed);
}

}  // namespace

std::string hook_name(HookPoint point) {
  const auto& entry = kNames[static_cast<std::size_t>(point.stage)];
  QKSCOPE_ASSERT(entry.stage == point.stage);
  return entry.in_layer ? fmt::format("blocks.{}.{}", point.layer, entry.name)
                        : std::string(entry.name);
}

std::vector<HookPoint> hook_points(const ModelConfig& model) {
  std::vector<HookPoint> points{{Stage::embed}};
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
    if (model.layers[static_cast<std::size_t>(layer)].cross_attention) continue;
    for (const auto& entry : kNames)
      if (entry.in_layer && exists(model, entry.stage)) points.push_back({entry.stage, layer});
  }
  points.push_back({Stage::final_normalized});
  points.push_back({Stage::logits});
  return points;
}

std::vector<HookPoint> match_hooks(const ModelConfig& model,
                                   std::span<const std::string> patterns) {
  const auto points = hook_points(model);
  std::vector<std::string> names;
  for (const auto point : points) names.push_back(hook_name(point));
  std::vector<bool> chosen(points.size());
  for (const auto& pattern : patterns) {
    bool matched = false;
    for (std::size_t i = 0; i < points.size(); ++i)
      if (glob_match(pattern, names[i])) matched = chosen[i] = true;
    if (matched) continue;
    const auto guess = nearest(pattern, names);
    bad_input(
        "hook '{}': no such hook point in this model ({} layers, {} q/k norm){}; docs/hooks.md "
        "lists them",
        pattern, model.n_layers, model.qk_norm ? "with" : "without",
        guess.empty() ? "" : fmt::format("; did you mean '{}'?", guess));
  }
  std::vector<HookPoint> matches;
  for (std::size_t i = 0; i < points.size(); ++i)
    if (chosen[i]) matches.push_back(points[i]);
  return matches;
}

}  // namespace qkscope
