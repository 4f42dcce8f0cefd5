#include "model/family.h"

#include <array>
#include <cmath>

#include "core/error.h"
#include "model/rope_reader.h"

namespace qkscope {
namespace {

// Both spellings: rope_parameters, or rope_theta with rope_scaling.
RopeConfig read_llama_rope(const ModelConfig& model, const ConfigReader& config,
                           const LlamaDefaults& defaults) {
  const char* key = config.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (config.has(key) &&
      (config.section(key).has("full_attention") || config.section(key).has("sliding_attention")))
    bad_input("{}: '{}' has one map per layer type, which only gemma3 models may have",
              config.where(), key);
  constexpr ConfigReader::Range kPart{0.0, 1.0};
  double partial = config.number("partial_rotary_factor", defaults.partial_rotary_factor, kPart);
  if (config.has(key))
    partial = config.section(key).number("partial_rotary_factor", partial, kPart);
  RopeConfig rope;
  rope.theta = config.number("rope_theta", defaults.rope_theta, kRopeTheta);
  rope.dim = static_cast<std::int64_t>(static_cast<double>(model.d_head) * partial);
  rope.max_positions = model.max_positions;
  rope.original_max = config.count("original_max_position_embeddings", 0);
  if (config.has(key)) return read_rope(rope, config.section(key));
  rope.original_max = model.max_positions;
  return rope;
}

}  // namespace

std::span<const Family> families() {
  static constexpr std::array kFamilies = {
      Family{"llama", read_llama},         Family{"mistral", read_mistral},
      Family{"ministral", read_ministral}, Family{"ministral3", read_ministral3},
      Family{"qwen2", read_qwen2},         Family{"qwen3", read_qwen3},
      Family{"smollm3", read_smollm3},     Family{"mllama_text_model", read_mllama},
      Family{"gemma3_text", read_gemma3},  Family{"glm", read_glm},
      Family{"glm4", read_glm4},
  };
  return kFamilies;
}

void read_llama_base(ModelConfig& model, const ConfigReader& config,
                     const LlamaDefaults& defaults) {
  model.n_layers = read_layer_count(config);
  model.d_model = config.count("hidden_size");
  model.n_heads = config.count("num_attention_heads");
  model.n_kv_heads = config.count("num_key_value_heads", model.n_heads);
  if (!config.has("head_dim") && defaults.d_head == 0 && model.d_model % model.n_heads != 0)
    bad_input("{}: hidden_size {} is not a multiple of {} heads and head_dim is not given",
              config.where(), model.d_model, model.n_heads);
  model.d_head = config.count(
      "head_dim", defaults.d_head > 0 ? defaults.d_head : model.d_model / model.n_heads);
  model.d_mlp = config.count("intermediate_size");
  model.vocab_size = config.count("vocab_size");
  model.embedding_rows = model.vocab_size;
  model.max_positions = config.count("max_position_embeddings", defaults.max_positions);
  model.norm_eps = config.number("rms_norm_eps", defaults.norm_eps, kNormEps);
  model.activation = read_activation(config, "silu");
  model.attention_scale = 1.0 / std::sqrt(static_cast<double>(model.d_head));
  model.tied = config.flag("tie_word_embeddings", defaults.tied);
  model.ropes = {read_llama_rope(model, config, defaults)};
  model.layers.assign(static_cast<std::size_t>(model.n_layers), LayerConfig{});
}

std::int64_t read_layer_count(const ConfigReader& config, std::int64_t otherwise) {
  constexpr std::int64_t kMostLayers = 4096;  // each is described before any weight is looked at
  const char* key = "num_hidden_layers";
  const auto layers = otherwise > 0 ? config.count(key, otherwise) : config.count(key);
  if (layers > kMostLayers) config.complain(key, fmt::format("at most {} layers", kMostLayers));
  return layers;
}

Activation read_activation(const ConfigReader& config, const std::string& otherwise) {
  const auto name = config.word("hidden_activation", config.word("hidden_act", otherwise));
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu;
  bad_input("{}: activation '{}' is not supported; supported are silu, gelu, gelu_pytorch_tanh",
            config.where(), name);
}

void read_layer_types(ModelConfig& model, const ConfigReader& config, std::int64_t window) {
  const auto types = config.words("layer_types");
  if (types.size() < model.layers.size())
    bad_input("{}: layer_types has {} entries, expected {}", config.where(), types.size(),
              model.layers.size());
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (types[i] != "sliding_attention" && types[i] != "full_attention")
      bad_input("{}: layer_types[{}] is '{}', expected full_attention or sliding_attention",
                config.where(), i, types[i]);
    const bool slides = types[i] == "sliding_attention";
    if (slides && window == 0)
      bad_input("{}: layer_types[{}] is sliding_attention but no sliding_window is set",
                config.where(), i);
    model.layers[i].window = slides ? window : 0;
  }
}

void read_upper_windows(ModelConfig& model, const ConfigReader& config) {
  const bool slides = config.flag("use_sliding_window", false);
  const std::int64_t window = slides ? config.count("sliding_window", 4096) : 0;
  if (config.has("layer_types")) return read_layer_types(model, config, window);
  if (!slides) return;
  for (auto i = config.natural("max_window_layers", 28); i < model.n_layers; ++i)
    model.layers[static_cast<std::size_t>(i)].window = window;
}

}  // namespace qkscope
