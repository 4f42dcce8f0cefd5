#include "analysis/results/head_filter.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "base/core/error.h"

namespace qkscope {
namespace {

std::set<int> layers_of(const CaptureIndex& index) {
  std::set<int> layers;
  for (const auto& query : index.queries) layers.insert(query.layer);
  return layers;
}

std::vector<int> heads_in(const CaptureIndex& index, int layer) {
  std::vector<int> heads;
  for (const auto& query : index.queries)
    if (query.layer == layer) heads.push_back(query.head);
  return heads;
}

void check_layers(const CaptureIndex& index, const std::vector<int>& layers) {
  const auto there = layers_of(index);
  for (const int layer : layers)
    if (!there.contains(layer))
      bad_input("{}: there is no layer {}; the capture has layers {}", index.data_root, layer,
                fmt::join(there, ", "));
}

void check_heads(const CaptureIndex& index, const std::vector<HeadId>& heads) {
  for (const auto& head : heads) {
    const auto there = heads_in(index, head.layer);
    if (there.empty()) check_layers(index, {head.layer});
    if (std::find(there.begin(), there.end(), head.head) == there.end())
      bad_input("{}: there is no query head {} in layer {}; the capture has heads {} there",
                index.data_root, head.head, head.layer, fmt::join(there, ", "));
  }
}

}  // namespace

std::vector<HeadId> chosen_queries(const CaptureIndex& index, const AnalyzeOptions& options) {
  check_layers(index, options.layers);
  check_heads(index, options.heads);
  std::vector<HeadId> chosen;
  for (const auto& query : index.queries) {
    const auto& layers = options.layers;
    const auto& heads = options.heads;
    const bool layer =
        layers.empty() || std::find(layers.begin(), layers.end(), query.layer) != layers.end();
    const bool head =
        heads.empty() || std::find_if(heads.begin(), heads.end(), [&](const auto& id) {
                           return id.layer == query.layer && id.head == query.head;
                         }) != heads.end();
    if (layer && head) chosen.push_back(query);
  }
  if (chosen.empty())
    bad_input("{}: the chosen layers and heads have no head in common", index.data_root);
  return chosen;
}

}  // namespace qkscope
