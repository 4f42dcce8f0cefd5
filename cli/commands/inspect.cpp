// qkscope inspect: describes a checkpoint.
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/error.h"
#include "cli/json.h"
#include "qkscope/experimental/store.h"
#include "qkscope/experimental/text.h"
#include "qkscope/hub.h"
#include "qkscope/model.h"

namespace qkscope::cli {
namespace {

struct InspectOptions {
  CommonOptions common;
  std::string name;
  std::string revision;
  std::int64_t length = 0;
  bool tensors = false;
  bool json = false;
};

// Formats layer numbers as ranges: "0-2, 4-6, 8".
std::string format_ranges(const std::vector<std::int64_t>& layers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end + 1 < layers.size() && layers[end + 1] == layers[end] + 1) ++end;
    parts.push_back(i == end ? fmt::format("{}", layers[i])
                             : fmt::format("{}-{}", layers[i], layers[end]));
    i = end + 1;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

Json rope_json(const RopeConfig& rope) {
  Json json{{"type", rope_type_name(rope.type)}, {"theta", rope.theta}, {"dim", rope.dim}};
  if (rope.begin > 0) json["begin"] = rope.begin;
  if (rope.type == RopeType::standard) return json;
  json["factor"] = rope.factor;
  json["original_max_position_embeddings"] = rope.original_max;
  if (rope.type == RopeType::proportional) json["rotated_pairs"] = rope.rotated_pairs;
  return json;
}

Json layer_json(const ModelConfig& model, std::int64_t layer) {
  const auto& config = model.layers[static_cast<std::size_t>(layer)];
  if (config.cross_attention) return {{"layer", layer}, {"attention", "cross"}, {"rope", nullptr}};
  constexpr const char* kMixers[] = {"attention", "gated_delta", "mamba2", "short_convolution",
                                     "none",      "kimi_delta"};  // in the order of Mixer
  const char* const mixer = kMixers[static_cast<std::size_t>(config.mixer)];
  if (!config.attends())
    return {{"layer", layer},
            {"attention", "none"},
            {"mixer", mixer},
            {"rope", nullptr},
            {"experts", config.experts}};
  const auto* rope = model.rope(layer);
  Json json = {{"layer", layer},
               {"attention", config.window > 0  ? "sliding"
                             : config.chunk > 0 ? "chunked"
                                                : "full"},
               {"window", config.window > 0 ? Json(config.window) : Json(nullptr)},
               {"rope", rope ? rope_json(*rope) : Json("none")},
               {"experts", config.experts}};
  if (config.has_state()) json["mixer"] = mixer;  // recurrent mixer; may run beside attention
  if (!model.has_equal_heads()) {
    json["d_head"] = model.d_head_of(config);
    json["n_kv_heads"] = model.n_kv_heads_of(config);
    json["kv_layer"] = config.kv_source(layer);
  }
  if (config.d_mlp > 0) json["d_mlp"] = config.d_mlp;
  return json;
}

// Describes the mixer of a layer: "Mamba 2 layer with 24 heads, state 128 x 64".
std::string describe_mixer(const MixerConfig& mixer) {
  if (mixer.kind == Mixer::short_convolution)
    return fmt::format("{} of {} tokens", mixer_name(mixer.kind), mixer.taps);
  return fmt::format("{} with {} heads, state {} x {}", mixer_name(mixer.kind), mixer.value_heads,
                     mixer.d_key, mixer.d_value);
}

Json config_json(const ModelConfig& model) {
  Json layers = Json::array();
  for (std::int64_t i = 0; i < model.n_layers; ++i) layers.push_back(layer_json(model, i));
  Json json{{"family", model.family},
            {"n_layers", model.n_layers},
            {"d_model", model.d_model},
            {"n_heads", model.n_heads},
            {"n_kv_heads", model.n_kv_heads},
            {"d_head", model.d_head},
            {"d_mlp", model.d_mlp},
            {"experts", model.experts.count},
            {"experts_per_token", model.experts.per_token},
            {"d_expert", model.experts.d_mlp},
            {"vocab_size", model.vocab_size},
            {"max_positions", model.max_positions},
            {"qk_norm", model.qk_norm},
            {"gated_mlp", model.gated_mlp()},
            {"parallel_residual", model.parallel_residual},
            {"learned_positions", model.learned_positions()},
            {"tied_embeddings", model.tied},
            {"parameters", parameter_count(model)},
            {"layers", layers}};
  if (model.per_layer.width > 0) json["per_layer_input"] = model.per_layer.width;
  if (const auto& latent = model.latent; model.has_latent_attention())
    json["latent_attention"] = {
        {"kv_rank", latent.kv_rank}, {"q_rank", latent.q_rank}, {"d_value", latent.d_value}};
  return json;
}

// Prints one line per kind of layer, ordered by the first layer of each kind.
void print_layers(const ModelConfig& model) {
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> kinds;
  for (std::int64_t i = 0; i < model.n_layers; ++i) {
    const auto& layer = model.layers[static_cast<std::size_t>(i)];
    std::string kind = layer.cross_attention ? "cross-attention, skipped without an image"
                       : layer.mixer == Mixer::none
                           ? (layer.experts ? "no attention, experts" : "no attention, MLP")
                       : !layer.attends() ? "no attention, " + describe_mixer(model.mixer)
                       : layer.window > 0
                           ? fmt::format("sliding attention, window {}", layer.window)
                       : layer.chunk > 0 ? fmt::format("attention in chunks of {}", layer.chunk)
                                         : "full attention";
    if (layer.has_attention()) {
      const auto* rope = model.rope(i);
      kind += model.learned_positions() ? ", learned positions"
              : !rope                   ? ", NoPE (no position embedding)"
                                        : fmt::format(", RoPE {} theta {:g} on {} of {} dimensions",
                                                      rope_type_name(rope->type), rope->theta,
                                    rope->type == RopeType::proportional ? 2 * rope->rotated_pairs
                                                                                           : rope->dim,
                                                      model.d_head_of(layer));
      if (rope && rope->type != RopeType::standard && rope->type != RopeType::proportional)
        kind += fmt::format(", factor {:g} over {} positions", rope->factor, rope->original_max);
    }
    if (layer.attention_beside) kind += ", beside it " + describe_mixer(model.mixer);
    if (layer.d_head > 0 || layer.n_kv_heads > 0)
      kind += fmt::format(", {} key/value heads of dimension {}", model.n_kv_heads_of(layer),
                          model.d_head_of(layer));
    if (layer.shares_kv()) kind += fmt::format(", keys and values of layer {}", layer.kv_layer);
    if (layer.v_from_k && !layer.shares_kv()) kind += ", values from W_K";
    if (layer.d_mlp > 0) kind += fmt::format(", MLP {}", layer.d_mlp);
    if (!layer.cross_attention && layer.mixer != Mixer::none && layer.mlp &&
        model.experts.count > 0 && !layer.experts)
      kind += ", one MLP";
    const auto same = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const auto& entry) { return entry.first == kind; });
    if (same == kinds.end())
      kinds.push_back({kind, {i}});
    else
      same->second.push_back(i);
  }
  for (const auto& [kind, layers] : kinds)
    fmt::print("  {} {}: {}\n", layers.size() == 1 ? "layer" : "layers", format_ranges(layers),
               kind);
}

void print_config(const ModelConfig& model) {
  fmt::print("family      {}{}\n", model.family,
             model.wrapped ? " (language model of a multimodal checkpoint)" : "");
  fmt::print("layers      {}\n", model.n_layers);
  print_layers(model);
  fmt::print("heads       {} query, {} key/value, dimension {}{}{}\n", model.n_heads,
             model.n_kv_heads, model.d_head, model.qk_norm ? ", q/k norm" : "",
             model.parallel_residual ? ", beside the MLP" : "");
  if (const auto& latent = model.latent; model.has_latent_attention())
    fmt::print("latents     {} for keys and values{}, values of dimension {}\n", latent.kv_rank,
               latent.q_rank > 0 ? fmt::format(", {} for queries", latent.q_rank) : "",
               latent.d_value);
  fmt::print("width       model {}, MLP {}{}, vocabulary {}\n", model.d_model, model.d_mlp,
             model.gated_mlp() ? "" : " (no gate)", model.vocab_size);
  if (model.per_layer.width > 0)
    fmt::print("inputs      {} for each token and layer\n", model.per_layer.width);
  if (const auto& experts = model.experts; experts.count > 0)
    fmt::print(
        "experts     {} of width {}, {} for each token{}{}\n", experts.count, experts.d_mlp,
        experts.per_token,
        experts.normalized ? fmt::format(", weights with sum {:g}", experts.weight_scale) : "",
        experts.shared_d_mlp > 0
            ? fmt::format(", and a shared one of width {}", experts.shared_d_mlp)
            : "");
  fmt::print("context     {} positions\n", model.max_positions);
  fmt::print("parameters  {}{}\n", format_count(static_cast<std::uint64_t>(parameter_count(model))),
             model.tied ? ", input and output embedding tied" : "");
}

std::map<std::string, std::size_t> dtype_counts(const CheckpointInfo& checkpoint) {
  std::map<std::string, std::size_t> counts;
  for (const auto& tensor : checkpoint.tensors) ++counts[tensor.stored_dtype];
  return counts;
}

void print_weights(const CheckpointInfo& checkpoint) {
  std::vector<std::string> dtypes;
  for (const auto& [dtype, count] : dtype_counts(checkpoint))
    dtypes.push_back(fmt::format("{} {}", count, dtype));
  fmt::print("weights     {} tensors ({}), {}\n", checkpoint.tensors.size(),
             fmt::join(dtypes, ", "), format_bytes(checkpoint.bytes));
}

void run(InspectOptions& options) {
  const FetchOptions fetch{.weights = false, .quiet = options.common.quiet};
  const auto folder = fetch_checkpoint(fetch_input(options.name, fetch), options.revision, fetch);
  const auto checkpoint = inspect_checkpoint(folder);
  const auto& model = checkpoint.config;
  const auto length =
      options.length > 0 ? options.length : std::min<std::int64_t>(model.max_positions, 4096);
  const auto activations = static_cast<std::uint64_t>(cpu_activation_bytes(model, length));
  if (options.json) {
    Json json = config_json(model);
    json["folder"] = folder;
    json["memory"] = {{"length", length}, {"activation_bytes", activations}};
    if (checkpoint.has_weights) {
      json["memory"]["weight_bytes"] = checkpoint.bytes;
      json["memory"]["widened_bytes"] = checkpoint.widened_bytes;
      json["dtypes"] = dtype_counts(checkpoint);
      for (const auto& tensor : checkpoint.tensors)
        json["tensors"][tensor.name] = {{"shape", tensor.shape}, {"dtype", tensor.stored_dtype}};
    }
    fmt::print("{}\n", dump_json(json, 2));
    return;
  }
  fmt::print("folder      {}\n", folder);
  print_config(model);
  if (checkpoint.has_weights)
    print_weights(checkpoint);
  else
    fmt::print("weights     none in this folder{}\n",
               checkpoint.indexed_tensors > 0
                   ? fmt::format("; its index names {} tensors, all that are needed",
                                 checkpoint.indexed_tensors)
                   : "");
  fmt::print("memory      {} weights (mapped){} + {} activations for {} tokens on the CPU\n",
             checkpoint.has_weights ? format_bytes(checkpoint.bytes) : "?",
             checkpoint.widened_bytes > 0
                 ? fmt::format(" + {} of them as float32", format_bytes(checkpoint.widened_bytes))
                 : "",
             format_bytes(activations), length);
  if (options.tensors)
    for (const auto& tensor : checkpoint.tensors)
      fmt::print("  {} [{}] {}\n", printable(tensor.name), fmt::join(tensor.shape, ", "),
                 tensor.stored_dtype);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto [command, options] = add_command<InspectOptions>(
      app, "inspect", "Describe a checkpoint: family, layers, heads, RoPE, weights, memory", run);
  command
      ->add_option("model", options->name,
                   "Checkpoint folder, GGUF file, or a model id in the Hugging Face cache")
      ->required();
  command->add_option("--revision", options->revision,
                      "Branch, tag or commit of a model id (default: main)");
  command
      ->add_option("--length", options->length,
                   "Tokens for the memory estimate (default: the context, at most 4096)")
      ->check(positive());
  std::vector<std::string> families;
  for (const auto& family : model_families())
    families.push_back(fmt::format("  {:18} {}", family.model_type, family.models));
  command->footer(
      fmt::format("Families, by the model_type of config.json:\n{}", fmt::join(families, "\n")));
  command->add_flag("--tensors", options->tensors, "List every tensor");
  command->add_flag("--json", options->json, "Print one JSON object");
}

}  // namespace qkscope::cli
