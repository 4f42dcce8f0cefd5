// Selects the heads of a capture: candidates, a seeded random draw, and the key heads of the drawn
// query heads.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/io/json.h"
#include "qkscope/capture.h"

namespace qkscope {

struct HeadSelection {
  struct Layer {
    std::set<std::int64_t> queries;
    std::set<std::int64_t> keys;
  };
  // By layer. Cross-attention layers are candidates too, so that draws agree with published
  // captures, but heads drawn there produce no vectors and are left out.
  std::map<std::int64_t, Layer> layers;
  std::vector<std::int64_t> eligible_layers;  // layers with candidates
  std::vector<std::int64_t> excluded_layers;  // sliding-window layers under full_attention_only
  Json metadata;  // keys head_sampling_* of the state file and the dataset card
};

// Throws bad input for a layer or head that the model lacks and for a filter that leaves no head.
HeadSelection select_heads(const ModelConfig& model, const HeadFilter& filter);

}  // namespace qkscope
