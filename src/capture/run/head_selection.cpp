#include "capture/run/head_selection.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/numerics/python_random.h"

namespace qkscope {
namespace {

// Returns the given indices sorted without duplicates, or all of [0, count).
std::vector<std::int64_t> indices(const std::optional<std::vector<std::int64_t>>& given,
                                  std::int64_t count, const std::string& key) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  if (!given) return all;
  for (const auto index : *given)
    if (index < 0 || index >= count)
      bad_input("{}: {} is out of range, the model has 0 to {}", key, index, count - 1);
  std::set<std::int64_t> sorted(given->begin(), given->end());
  return {sorted.begin(), sorted.end()};
}

// Returns the heads that pass the filter, by layer.
std::map<std::int64_t, std::vector<std::int64_t>> filtered(const ModelConfig& model,
                                                           const HeadFilter& filter) {
  std::map<std::int64_t, std::vector<std::int64_t>> wanted;
  if (!filter.pairs) {
    const auto heads = indices(filter.heads, model.n_heads, "capture.heads");
    for (const auto layer : indices(filter.layers, model.n_layers, "capture.layers"))
      wanted[layer] = heads;
    return wanted;
  }
  for (const auto& [layer, head] : std::set(filter.pairs->begin(), filter.pairs->end())) {
    if (layer < 0 || layer >= model.n_layers || head < 0 || head >= model.n_heads)
      bad_input(
          "capture.heads: [{}, {}] is not there, the model has layers 0 to {} and heads 0 to {}",
          layer, head, model.n_layers - 1, model.n_heads - 1);
    wanted[layer].push_back(head);
  }
  return wanted;
}

std::vector<LayerHead> draw_heads(const std::vector<LayerHead>& candidates,
                                  const std::optional<HeadSampling>& sampling) {
  if (!sampling) return candidates;
  if (sampling->count > std::ssize(candidates))
    log::warn(
        "capture.head_sampling.count: {} heads asked for, {} are there; all of them are taken",
        sampling->count, candidates.size());
  if (sampling->count >= std::ssize(candidates)) return candidates;
  std::vector<LayerHead> drawn;
  PythonRandom random(sampling->seed);
  for (const auto i : random.sample(static_cast<std::uint32_t>(candidates.size()),
                                    static_cast<std::uint32_t>(sampling->count)))
    drawn.push_back(candidates[i]);
  return drawn;
}

bool slides(const ModelConfig& model, std::int64_t layer) {
  return model.layers[static_cast<std::size_t>(layer)].window > 0;
}

// Keys and values as in the state file of qk-sniffer.
Json sampling_metadata(const ModelConfig& model, const HeadFilter& filter, std::size_t selected,
                       std::size_t selected_keys, std::int64_t excluded) {
  std::int64_t sliding = 0;
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer) sliding += slides(model, layer);
  Json metadata = {{"head_sampling_strategy", filter.sampling ? "random_query" : "all"},
                   {"head_sampling_selected_query_heads", selected},
                   {"head_sampling_selected_key_heads", selected_keys},
                   {"head_sampling_num_layers", model.n_layers},
                   {"head_sampling_num_query_heads", model.n_heads},
                   {"head_sampling_num_key_heads", model.n_kv_heads},
                   {"head_sampling_full_attention_only", filter.full_attention_only ? 1 : 0},
                   {"head_sampling_sliding_layer_count", sliding},
                   {"head_sampling_full_layer_count", model.n_layers - sliding},
                   {"head_sampling_sliding_candidates_excluded", excluded}};
  if (filter.sampling) {
    metadata["head_sampling_seed"] = filter.sampling->seed;
    metadata["head_sampling_requested_query_heads"] = filter.sampling->count;
  }
  return metadata;
}

}  // namespace

HeadSelection select_heads(const ModelConfig& model, const HeadFilter& filter) {
  HeadSelection selection;
  std::vector<LayerHead> candidates;
  std::int64_t left_out = 0;
  const auto wanted = filtered(model, filter);
  for (const auto& [layer, heads] : wanted) {
    const bool excluded = filter.full_attention_only && slides(model, layer);
    (excluded ? selection.excluded_layers : selection.eligible_layers).push_back(layer);
    if (excluded) left_out += std::ssize(heads);
    if (excluded) continue;
    for (const auto head : heads) candidates.push_back({layer, head});
  }
  if (candidates.empty())
    bad_input(
        "capture: no heads are left: {} of {} layers slide and capture.full_attention_only leaves "
        "them out; set it to false to capture them",
        selection.excluded_layers.size(), wanted.size());

  const auto selected = draw_heads(candidates, filter.sampling);
  std::set<std::pair<std::int64_t, std::int64_t>> keys;
  for (const auto [layer, head] : selected) {
    const auto key_head = head / model.heads_per_kv_head();
    keys.emplace(layer, key_head);
    if (model.layers[static_cast<std::size_t>(layer)].cross_attention) continue;
    selection.layers[layer].queries.insert(head);
    selection.layers[layer].keys.insert(key_head);
  }
  if (selection.layers.empty())
    bad_input(
        "capture: every selected head is in a cross-attention layer, which text does not use");
  selection.metadata = sampling_metadata(model, filter, selected.size(), keys.size(), left_out);
  return selection;
}

}  // namespace qkscope
