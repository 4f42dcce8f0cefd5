// Which heads a run captures: candidates, the seeded draw, and the key heads they read.
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
  // By layer. Layers that do not run on text (cross-attention) are candidates as all others, so
  // that draws agree with published ones, but what is drawn there gives no vectors and is left out.
  std::map<std::int64_t, Layer> layers;
  std::vector<std::int64_t> eligible_layers;  // that had candidates
  std::vector<std::int64_t> excluded_layers;  // sliding ones that full_attention_only left out
  Json metadata;  // head_sampling_*: for the state file and the dataset card
};

// Bad input: a layer or head that the model does not have, a filter that leaves nothing.
HeadSelection select_heads(const ModelConfig& model, const HeadFilter& filter);

}  // namespace qkscope
