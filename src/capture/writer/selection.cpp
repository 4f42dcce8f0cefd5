#include "capture/writer/selection.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "base/numerics/random.h"
#include "engine/model/model_config.h"

namespace qkscope {
namespace {

// Returns the given indices, sorted and without duplicates, or all of [0, count) if none are given.
std::vector<std::int64_t> selected_indices(const std::optional<std::vector<std::int64_t>>& given,
                                           std::int64_t count, const std::string& key) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  if (!given) return all;
  for (const auto index : *given)
    if (index < 0 || index >= count)
      reject("{}: {} is out of range, the model has 0 to {}", key, index, count - 1);
  std::set<std::int64_t> sorted(given->begin(), given->end());
  return {sorted.begin(), sorted.end()};
}

std::map<std::int64_t, std::vector<std::int64_t>> filtered_heads(const ModelConfig& model,
                                                                 const HeadFilter& filter) {
  std::map<std::int64_t, std::vector<std::int64_t>> wanted;
  if (!filter.pairs) {
    const auto heads = selected_indices(filter.heads, model.n_heads, "capture.heads");
    for (const auto layer : selected_indices(filter.layers, model.n_layers, "capture.layers"))
      wanted[layer] = heads;
    return wanted;
  }
  for (const auto& [layer, head] : std::set(filter.pairs->begin(), filter.pairs->end())) {
    if (layer < 0 || layer >= model.n_layers || head < 0 || head >= model.n_heads)
      reject("capture.heads: [{}, {}] is not there, the model has layers 0 to {} and heads 0 to {}",
             layer, head, model.n_layers - 1, model.n_heads - 1);
    wanted[layer].push_back(head);
  }
  return wanted;
}

std::vector<LayerHead> sample_heads(const std::vector<LayerHead>& candidates,
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

bool has_sliding_window(const ModelConfig& model, std::int64_t layer) {
  return model.layers[static_cast<std::size_t>(layer)].window > 0;
}

// Returns the metadata keys head_sampling_* in the format of qk-sniffer's state file.
Json head_sampling_json(const ModelConfig& model, const HeadFilter& filter, std::size_t selected,
                        std::size_t selected_keys, std::int64_t excluded) {
  std::int64_t sliding = 0;
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer)
    sliding += has_sliding_window(model, layer);
  const auto attending = std::ranges::count_if(model.layers, &LayerConfig::attends);
  Json metadata = {{"head_sampling_strategy", filter.sampling ? "random_query" : "all"},
                   {"head_sampling_selected_query_heads", selected},
                   {"head_sampling_selected_key_heads", selected_keys},
                   {"head_sampling_num_layers", model.n_layers},
                   {"head_sampling_num_query_heads", model.n_heads},
                   {"head_sampling_num_key_heads", model.n_kv_heads},
                   {"head_sampling_full_attention_only", filter.full_attention_only ? 1 : 0},
                   {"head_sampling_sliding_layer_count", sliding},
                   {"head_sampling_full_layer_count", attending - sliding},
                   {"head_sampling_sliding_candidates_excluded", excluded}};
  if (filter.sampling) {
    metadata["head_sampling_seed"] = filter.sampling->seed;
    metadata["head_sampling_requested_query_heads"] = filter.sampling->count;
  }
  return metadata;
}

std::uint64_t combine_hash(std::uint64_t seed, std::uint64_t value) {
  seed = (seed ^ value) * 0x9E3779B97F4A7C15ull;
  return seed ^ (seed >> 32);
}

void keep_lowest_hashed_positions(std::vector<std::int32_t>& positions, std::uint64_t seed,
                                  std::size_t rows) {
  if (positions.size() <= rows) return;
  const auto before = [seed](std::int32_t a, std::int32_t b) {
    const auto hash_a = splitmix64(seed ^ splitmix64(static_cast<std::uint64_t>(a) + 1));
    const auto hash_b = splitmix64(seed ^ splitmix64(static_cast<std::uint64_t>(b) + 1));
    return hash_a != hash_b ? hash_a < hash_b : a < b;
  };
  const auto cut = positions.begin() + static_cast<std::ptrdiff_t>(rows);
  std::nth_element(positions.begin(), cut, positions.end(), before);
  positions.erase(cut, positions.end());
  std::ranges::sort(positions);
}

SampledPositions sample_positions(const ExampleBatch& prepared, const HeadGroup& group,
                                  const PositionSampler& sampler) {
  SampledPositions sample;
  for (std::size_t s = 0; s < prepared.sequence.size(); ++s) {
    const auto& example = prepared.examples[prepared.sequence[s]];
    const auto& sequence = prepared.batch.sequences[s];
    const auto seed = sampling_seed(example.record.key, group.layer, static_cast<char>(group.kind));
    for (const auto position : sampler.sample(seed, sequence.length)) {
      sample.positions.push_back(position);
      sample.rows.push_back(sequence.begin + position);
    }
    sample.ends.push_back(sample.positions.size());
  }
  return sample;
}

}  // namespace

HeadSelection select_heads(const ModelConfig& model, const HeadFilter& filter) {
  HeadSelection selection;
  std::vector<LayerHead> candidates;
  std::int64_t left_out = 0;
  auto wanted = filtered_heads(model, filter);
  std::erase_if(wanted, [&](const auto& entry) {
    return !model.layers[static_cast<std::size_t>(entry.first)].attends();
  });
  if (wanted.empty())
    reject("capture: the chosen layers have no attention; layers with attention are {}",
           format_layer_ranges_by_attention(model, true));
  log_layers_without_attention(model);
  for (const auto& [layer, heads] : wanted) {
    const bool excluded = filter.full_attention_only && has_sliding_window(model, layer);
    (excluded ? selection.excluded_layers : selection.eligible_layers).push_back(layer);
    if (excluded) left_out += std::ssize(heads);
    if (excluded) continue;
    for (const auto head : heads) candidates.push_back({layer, head});
  }
  if (candidates.empty())
    reject(
        "capture: no heads are left: {} of {} layers slide and capture.full_attention_only leaves "
        "them out; set it to false to capture them",
        selection.excluded_layers.size(), wanted.size());

  const auto selected = sample_heads(candidates, filter.sampling);
  std::set<std::pair<std::int64_t, std::int64_t>> keys;
  for (const auto [layer, head] : selected) {
    const auto key_head = head * model.n_kv_heads_of(model.layer(layer)) / model.n_heads;
    keys.emplace(layer, key_head);
    if (model.layers[static_cast<std::size_t>(layer)].cross_attention) continue;
    selection.layers[layer].queries.insert(head);
    selection.layers[layer].keys.insert(key_head);
  }
  if (selection.layers.empty())
    reject("capture: every selected head is in a cross-attention layer, which text does not use");
  selection.metadata = head_sampling_json(model, filter, selected.size(), keys.size(), left_out);
  return selection;
}

std::uint64_t sampling_seed(std::int64_t example_key, std::int64_t layer, char kind) {
  std::uint64_t seed = 0x243F6A8885A308D3ull;
  seed = combine_hash(seed, splitmix64(static_cast<std::uint64_t>(example_key)));
  seed = combine_hash(seed, splitmix64(static_cast<std::uint64_t>(layer)));
  return combine_hash(seed, splitmix64(static_cast<std::uint64_t>(kind)));
}

PositionSampler::PositionSampler(const SamplerOptions& options)
    : options_(options), buckets_(options) {}

std::vector<std::int32_t> PositionSampler::sample(std::uint64_t seed, std::int64_t length) const {
  std::vector<std::int32_t> positions;
  TorchRandom uniform(seed);
  std::int64_t bucket_end = 0;
  float p = 0.0f;  // probability of keeping a position in the bucket
  for (std::int64_t i = 0; i < length; ++i) {
    if (i >= bucket_end) {
      const auto here = bucket_of(i);
      bucket_end = buckets_.positions_of_bucket(here).end;
      p = options_.type == SamplerType::log_uniform
              ? std::min(1.0f, std::ldexp(static_cast<float>(options_.base_rate), -here))
              : static_cast<float>(
                    std::min(1.0, options_.base_rate / to_double(options_.min_bucket_size)));
    }
    if (options_.type == SamplerType::all || uniform() < p)
      positions.push_back(static_cast<std::int32_t>(i));
  }
  if (options_.max_rows)
    keep_lowest_hashed_positions(positions, seed, static_cast<std::size_t>(*options_.max_rows));
  return positions;
}

ExampleBatch prepare_batch(const Manifest& manifest, std::vector<Example> examples) {
  ExampleBatch prepared;
  prepared.examples = std::move(examples);
  for (std::size_t i = 0; i < prepared.examples.size(); ++i) {
    const auto& ids = prepared.examples[i].ids;
    if (ids.empty()) continue;  // a text without tokens has no rows
    prepared.batch.add(ids);
    prepared.sequence.push_back(i);
  }
  const PositionSampler sampler(manifest.sampler);
  prepared.samples = parallel_map(manifest.groups, [&](const HeadGroup& group) {
    return sample_positions(prepared, group, sampler);
  });
  return prepared;
}

}  // namespace qkscope
