// Small models of tests/golden with the token ids of their text.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "input/checkpoint/safetensors.h"
#include "paths.h"
#include "qkscope/experimental/attribution.h"

namespace qkscope {

// Names of all folders of tests/golden that hold a model.
inline std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/golden")))
    if (std::filesystem::exists(entry.path() / "golden.safetensors"))
      names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// Whether score attribution refuses the family: a gate on the outputs of heads, norms of q and k
// after RoPE, latent attention, scaled inputs of experts (Llama 4), layers without attention, or
// layer scalars (Gemma 4).
inline bool is_refused(const ModelConfig& model) {
  return model.has_attention_gate() || model.rotated_qk_norm || model.has_latent_attention() ||
         model.experts.scales_input || model.has_recurrence() || model.layer_scalars;
}

inline std::vector<std::int32_t> golden_tokens(const std::string& name) {
  const SafetensorsFile answers(golden_path(name) + "/golden.safetensors");
  const auto ids = answers.tensor("token_ids");
  const auto* values = ids.data<std::int64_t>();
  return {values, values + ids.size()};
}

// All heads of the last layer that runs on text.
inline std::vector<AttentionHead> last_heads(const ModelConfig& model) {
  auto layer = model.n_layers - 1;
  while (!model.layers[static_cast<std::size_t>(layer)].has_attention()) --layer;
  std::vector<AttentionHead> heads;
  for (std::int64_t head = 0; head < model.n_heads; ++head) heads.push_back({layer, head});
  return heads;
}

// Largest |residual| over the sum of absolute contributions of a pair.
inline double worst_residual(const ScoreAttribution& found) {
  double worst = 0;
  for (const auto& pair : found.pairs())
    worst = std::max(worst, std::abs(pair.residual) / pair.magnitude);
  return worst;
}

}  // namespace qkscope
