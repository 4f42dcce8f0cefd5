#include <algorithm>
#include <atomic>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/thread_pool.h"
#include "capture/run/capture_plan.h"
#include "capture/run/example_source.h"
#include "capture/writer/selection.h"
#include "engine/device/backend.h"
#include "engine/device/memory_plan.h"

namespace qkscope {
namespace {

// Multiply-adds per row (token) in the weight matrices of attention: one for each weight.
double count_attention_weights(const ModelConfig& model, const LayerConfig& layer) {
  const auto kv_heads = layer.shares_kv() ? 0 : model.n_kv_heads_of(layer);
  const auto heads = 2 * (model.n_heads + kv_heads) +  // q, o; k, v
                     (model.has_attention_gate() ? model.n_heads : 0);
  if (!model.has_latent_attention())
    return to_double(heads) * to_double(model.d_head_of(layer)) * to_double(model.d_model);
  const auto& [kv_rank, q_rank, d_value, eps, shared] = model.latent;
  const auto q_width = to_double(model.n_heads * model.d_head);
  const auto q_input = to_double(q_rank > 0 ? q_rank : model.d_model);
  return q_width * q_input + to_double(q_rank + kv_rank + shared) * to_double(model.d_model) +
         to_double(model.n_heads * (model.d_head - shared + d_value)) * to_double(kv_rank) +
         to_double(model.n_heads * d_value) * to_double(model.d_model);
}

// Multiply-adds per row in the matrix products of a mixer other than attention.
double count_mixer_weights(const ModelConfig& model) {
  const auto& mixer = model.mixer;
  const auto z = mixer.kind == Mixer::kimi_delta ? mixer.gate_rank() : mixer.value_width();
  const auto gates = mixer.kind == Mixer::short_convolution ? 2 * z
                     : mixer.kind == Mixer::gated_delta     ? z + 2 * mixer.value_heads
                                                            : z + mixer.value_heads;
  return to_double(mixer.channels() + mixer.value_width() + gates) * to_double(model.d_model) +
         to_double(mixer.gate_rank()) * to_double(mixer.value_width());
}

// Multiply-adds per row in the matrix products of one layer; counts active experts only.
double count_layer_weights(const ModelConfig& model, const LayerConfig& layer) {
  const auto d_model = to_double(model.d_model);
  double attention = layer.has_attention() ? count_attention_weights(model, layer) : 0;
  if (layer.has_state()) attention += count_mixer_weights(model);
  if (!layer.mlp) return attention;
  const double matrices = model.gated_mlp() ? 3 : 2;
  const auto mlp =
      matrices * to_double(model.d_mlp_of(layer)) + 3 * to_double(model.per_layer.width);
  if (!layer.experts) return attention + d_model * mlp;
  const auto& experts = model.experts;
  const auto router = d_model * to_double(experts.count);
  return attention + router +
         matrices * d_model * to_double(experts.per_token * experts.d_mlp + experts.shared_d_mlp);
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DryRun, examples, truncated, dropped_chunks, tokens, longest,
                                   files, rows, bytes, flop, weight_bytes, activation_bytes,
                                   largest_batch)

double count_attended_pairs(std::int64_t length, std::int64_t window, std::int64_t chunk) {
  if (chunk > 0 && chunk < length)
    return to_double(length / chunk) * count_attended_pairs(chunk, window, 0) +
           count_attended_pairs(length % chunk, window, 0);
  const auto full = to_double(length) * to_double(length + 1) / 2;
  if (window <= 0 || window >= length) return full;
  return full - to_double(length - window) * to_double(length - window + 1) / 2;
}

double forward_flop(const ModelConfig& model, std::int64_t length) {
  double flop = 0;
  for (const auto& layer : model.layers) {
    if (layer.cross_attention) continue;  // cross-attention does not run on text
    flop += 2 * count_layer_weights(model, layer) * to_double(length);
    if (layer.has_attention())
      flop += 2 * to_double(model.d_head_of(layer) + model.d_value_of(layer)) *
              to_double(model.n_heads) * count_attended_pairs(length, layer.window, layer.chunk);
    if (layer.has_state())
      flop += 8 * to_double(model.mixer.value_width()) * to_double(model.mixer.d_key) *
              to_double(length);  // reading, predicting, writing and decaying the state
  }
  return flop;
}

DryRun dry_run(const CapturePlan& made, const Shard& shard) {
  return translate_exceptions([&] {
    const auto& plan = made.run_plan();
    DryRun dry;
    ExampleSource source(plan, shard);
    if (source.has_dataset_ids()) source.check_ids_and_count_documents();
    Example example;
    std::int64_t batch_examples = 0;
    std::int64_t batch_tokens = 0;
    constexpr std::int64_t kNumbersBesideVector = 5;  // bucket, ids (1 + 2), position
    const PositionSampler sampler(plan.manifest.sampler);
    std::atomic<std::int64_t> rows = 0;     // summed over all heads
    std::atomic<std::int64_t> numbers = 0;  // 4-byte numbers in these rows
    while (source.next(example)) {
      if (!plan.packing.can_add_example(batch_examples, batch_tokens, example.record.tokens))
        batch_examples = batch_tokens = 0;
      ++batch_examples;
      batch_tokens += example.record.tokens;
      dry.largest_batch = std::max(dry.largest_batch, batch_tokens);
      ++dry.examples;
      dry.truncated += example.record.truncated;
      dry.tokens += example.record.tokens;
      dry.longest = std::max<std::int64_t>(dry.longest, example.record.tokens);
      parallel_for(std::ssize(plan.manifest.groups), [&](std::int64_t i) {
        const auto& group = plan.manifest.groups[as_index(i)];
        const auto seed =
            sampling_seed(example.record.key, group.layer, static_cast<char>(group.kind));
        const auto sampled =
            std::ssize(sampler.sample(seed, example.record.tokens)) * std::ssize(group.heads);
        rows += sampled;
        numbers += sampled * (plan.manifest.head_dim_of(group) + kNumbersBesideVector);
      });
      dry.flop += forward_flop(plan.model, example.record.tokens);
    }
    dry.rows = rows;
    dry.bytes = numbers * 4;
    dry.dropped_chunks = source.dropped_chunk_count();
    for (const auto& group : plan.manifest.groups) dry.files += std::ssize(group.heads);
    dry.weight_bytes = plan.memory.held_weights;
    if (!plan.engine)  // an external engine has its own memory
      dry.activation_bytes = activation_bytes(plan.model, dry.largest_batch, plan.backend);
    return dry;
  });
}

std::string plan_json(const CapturePlan& made, const DryRun& dry) {
  const auto& plan = made.run_plan();
  Json heads = Json::object();
  for (const auto& group : plan.manifest.groups) {
    auto& layer = heads[std::to_string(group.layer)];
    if (layer.is_null()) layer = {{"q", Json::array()}, {"k", Json::array()}};
    layer[group.kind == HeadKind::query ? "q" : "k"] = group.heads;
  }
  Json json = dry;
  json.update(Json{{"model", plan.config.model.name},
                   {"data_root", plan.config.output.data_root},
                   {"heads", heads},
                   {"eligible_layers", plan.selection.eligible_layers},
                   {"excluded_layers", plan.selection.excluded_layers},
                   {"head_sampling", plan.selection.metadata},
                   {"device", device_name(plan.backend.device)},
                   {"dtype", dtype_name(plan.backend.dtype)},
                   {"memory", dry.weight_bytes + dry.activation_bytes},
                   {"weights_stream", plan.memory.streams()},
                   {"device_bytes", plan.memory.available},
                   {"config_hash", plan.manifest.config_hash}});
  return translate_exceptions([&] { return json.dump(2); });
}

}  // namespace qkscope
