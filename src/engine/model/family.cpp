#include <array>
#include <cmath>
#include <utility>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "engine/model/model_config.h"

namespace qkscope {
namespace {

constexpr std::pair<RopeType, const char*> kRopeTypes[] = {
    {RopeType::standard, "default"}, {RopeType::linear, "linear"}, {RopeType::dynamic, "dynamic"},
    {RopeType::yarn, "yarn"},        {RopeType::llama3, "llama3"}, {RopeType::longrope, "longrope"},
};

RopeType read_rope_type(const ConfigReader& parameters) {
  const auto name = parameters.string("rope_type", parameters.string("type", "default"));
  // "longrope" was called "su" at first, and "yarn" in some Phi-3 files.
  if (name == "su" || (name == "yarn" && parameters.has_value("short_factor")))
    return RopeType::longrope;
  for (const auto& [type, known] : kRopeTypes)
    if (name == known) return type;
  reject("{}: rope_type is '{}', supported are default, linear, dynamic, yarn, llama3, longrope",
         parameters.where(), name);
}

// Range of valid RoPE factors: wider than published models need, but angles cannot overflow.
constexpr ConfigReader::NumberRange kFactor{1e-3, 1e6};
constexpr ConfigReader::NumberRange kMagnitude{0.0, 1e3};

void read_longrope(RopeConfig& rope, const ConfigReader& parameters) {
  const auto read = [&](const char* key) {
    auto factors = parameters.numbers(key, kFactor);
    const auto expected = static_cast<std::size_t>(rope.dim / 2);
    if (factors.size() != expected)
      reject("{}: '{}' has {} values, expected {} (half the rotated head)", parameters.where(), key,
             factors.size(), expected);
    return factors;
  };
  rope.short_factor = read("short_factor");
  rope.long_factor = read("long_factor");
  if (rope.original_max < 2)  // LongRoPE divides by log(original_max)
    reject("{}: 'original_max_position_embeddings' is {}, expected 2 or more for longrope",
           parameters.where(), rope.original_max);
}

}  // namespace

std::span<const ModelFamilySpec> model_family_specs() {
  static constexpr std::array kFamilies = {
      ModelFamilySpec{"llama", "Llama 1 to 3, SmolLM2", read_llama},
      ModelFamilySpec{"mistral", "Mistral", read_mistral},
      ModelFamilySpec{"ministral", "Ministral", read_ministral},
      ModelFamilySpec{"ministral3", "Ministral 3", read_ministral3},
      ModelFamilySpec{"qwen2", "Qwen2, Qwen2.5", read_qwen2},
      ModelFamilySpec{"qwen3", "Qwen3", read_qwen3},
      ModelFamilySpec{"smollm3", "SmolLM3", read_smollm3},
      ModelFamilySpec{"mllama_text_model", "the language model of Llama-3.2-Vision", read_mllama},
      ModelFamilySpec{"gemma2", "Gemma 2", read_gemma2},
      ModelFamilySpec{"gemma3_text", "Gemma 3", read_gemma3},
      ModelFamilySpec{"gemma4_text", "Gemma 4 without experts", read_gemma4},
      ModelFamilySpec{"glm", "GLM-4", read_glm},
      ModelFamilySpec{"glm4", "GLM-4-0414", read_glm4},
      ModelFamilySpec{"gpt_neox", "GPT-NeoX, Pythia", read_gpt_neox},
      ModelFamilySpec{"gpt2", "GPT-2", read_gpt2},
      ModelFamilySpec{"olmo", "OLMo", read_olmo},
      ModelFamilySpec{"olmo2", "OLMo 2", read_olmo2},
      ModelFamilySpec{"olmo3", "OLMo 3", read_olmo3},
      ModelFamilySpec{"phi3", "Phi-3, Phi-4", read_phi3},
      ModelFamilySpec{"granite", "Granite 3", read_granite},
      ModelFamilySpec{"starcoder2", "StarCoder2", read_starcoder2},
      ModelFamilySpec{"apertus", "Apertus", read_apertus},
      ModelFamilySpec{"qwen3_moe", "Qwen3-MoE", read_qwen3_moe},
      ModelFamilySpec{"mixtral", "Mixtral", read_mixtral},
      ModelFamilySpec{"gpt_oss", "gpt-oss", read_gpt_oss},
      ModelFamilySpec{"cohere2", "Command R7B, Command A", read_cohere2},
      ModelFamilySpec{"exaone4", "EXAONE 4.0", read_exaone4},
      ModelFamilySpec{"olmoe", "OLMoE", read_olmoe},
      ModelFamilySpec{"seed_oss", "Seed-OSS", read_seed_oss},
      ModelFamilySpec{"ernie4_5", "ERNIE 4.5", read_ernie4_5},
      ModelFamilySpec{"glm4_moe", "GLM-4.5, GLM-4.6, GLM-4.7", read_glm4_moe},
      ModelFamilySpec{"hunyuan_v1_dense", "Hunyuan dense", read_hunyuan_v1_dense},
      ModelFamilySpec{"nanochat", "nanochat", read_nanochat},
      ModelFamilySpec{"ernie4_5_moe", "ERNIE 4.5 MoE", read_ernie4_5_moe},
      ModelFamilySpec{"minimax_m2", "MiniMax-M2", read_minimax_m2},
      ModelFamilySpec{"afmoe", "Trinity", read_afmoe},
      ModelFamilySpec{"deepseek_v2", "DeepSeek-V2, DeepSeek-V2-Lite", read_deepseek_v2},
      ModelFamilySpec{"deepseek_v3", "DeepSeek-V3, DeepSeek-R1, Moonlight", read_deepseek_v3},
      ModelFamilySpec{"llama4_text", "Llama 4", read_llama4},
      ModelFamilySpec{"qwen3_next", "Qwen3-Next", read_qwen3_next},
      ModelFamilySpec{"qwen3_5_text", "Qwen3.5", read_qwen3_5},
      ModelFamilySpec{"olmo_hybrid", "OLMo Hybrid", read_olmo_hybrid},
      ModelFamilySpec{"lfm2", "LFM2", read_lfm2},
      ModelFamilySpec{"falcon_h1", "Falcon-H1", read_falcon_h1},
      ModelFamilySpec{"granitemoehybrid", "Granite 4", read_granitemoehybrid},
      ModelFamilySpec{"nemotron_h", "Nemotron-H, Nemotron 3 Nano", read_nemotron_h},
      ModelFamilySpec{"kimi_linear", "Kimi Linear", read_kimi_linear},
  };
  return kFamilies;
}

std::vector<ModelFamily> model_families() {
  return translate_exceptions([] {
    std::vector<ModelFamily> list;
    for (const auto& family : model_family_specs())
      list.push_back({family.model_type, family.models});
    return list;
  });
}

void read_llama_config(ModelConfig& model, const ConfigReader& config,
                       const LlamaDefaults& defaults) {
  read_llama_config_without_rope(model, config, defaults);
  model.ropes = {read_llama_rope(model, config, defaults)};
}

void read_llama_config_without_rope(ModelConfig& model, const ConfigReader& config,
                                    const LlamaDefaults& defaults) {
  model.n_layers = defaults.n_layers > 0 ? defaults.n_layers : read_layer_count(config);
  model.d_model = config.positive_integer("hidden_size");
  model.n_heads = config.positive_integer("num_attention_heads");
  const bool absent = !config.contains_key("num_key_value_heads");
  model.n_kv_heads = config.positive_integer(
      "num_key_value_heads",
      absent && defaults.n_kv_heads > 0 ? defaults.n_kv_heads : model.n_heads);
  // A head_dim of null means hidden_size / num_attention_heads and overrides the family's default.
  const bool derived = defaults.d_head == 0 || config.contains_key("head_dim");
  if (!config.has_value("head_dim") && derived && model.d_model % model.n_heads != 0)
    reject("{}: hidden_size {} is not a multiple of {} heads and head_dim is not given",
           config.where(), model.d_model, model.n_heads);
  model.d_head = config.positive_integer("head_dim",
                                         derived ? model.d_model / model.n_heads : defaults.d_head);
  model.d_mlp = config.positive_integer(defaults.d_mlp_key);
  model.vocab_size = config.positive_integer("vocab_size");
  model.embedding_rows = model.vocab_size;
  model.max_positions = config.positive_integer("max_position_embeddings", defaults.max_positions);
  model.norm_eps = config.number(defaults.norm_eps_key, defaults.norm_eps, kNormEps);
  model.activation = read_activation(config, defaults.activation);
  model.attention_scale = 1.0 / std::sqrt(static_cast<double>(model.d_head));
  model.tied = config.flag("tie_word_embeddings", defaults.tied);
  model.layers.assign(as_index(model.n_layers), LayerConfig{});
}

RopeConfig read_llama_rope(const ModelConfig& model, const ConfigReader& config,
                           const LlamaDefaults& defaults) {
  const char* key = config.has_value("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (config.has_value(key) && (config.section(key).has_value("full_attention") ||
                                config.section(key).has_value("sliding_attention")))
    reject("{}: '{}' has one map per layer type, which only gemma3 and olmo3 models may have",
           config.where(), key);
  constexpr ConfigReader::NumberRange kPart{0.0, 1.0};
  double partial = config.number("partial_rotary_factor", defaults.partial_rotary_factor, kPart);
  if (config.has_value(key))
    partial = config.section(key).number("partial_rotary_factor", partial, kPart);
  RopeConfig rope;
  rope.theta = config.number("rope_theta", defaults.rope_theta, kRopeTheta);
  rope.dim = static_cast<std::int64_t>(static_cast<double>(model.d_head) * partial);
  rope.max_positions = model.max_positions;
  rope.original_max = config.positive_integer("original_max_position_embeddings", 0);
  if (config.has_value(key)) return read_rope(rope, config.section(key));
  rope.original_max = model.max_positions;
  return rope;
}

std::int64_t read_layer_count(const ConfigReader& config, std::int64_t fallback, const char* key) {
  constexpr std::int64_t kMostLayers = 4096;  // limits the memory of LayerConfig
  const auto layers =
      fallback > 0 ? config.positive_integer(key, fallback) : config.positive_integer(key);
  if (layers > kMostLayers) config.fail(key, fmt::format("at most {} layers", kMostLayers));
  return layers;
}

Activation read_activation(const ConfigReader& config, const std::string& fallback,
                           const char* own_key) {
  static constexpr std::pair<const char*, Activation> kActivations[] = {
      {"silu", Activation::silu},
      {"swish", Activation::silu},
      {"gelu", Activation::gelu},
      {"gelu_python", Activation::gelu},
      // The next three names are aliases for GELU with the tanh approximation.
      {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"gelu_new", Activation::gelu_tanh},
      {"gelu_fast", Activation::gelu_tanh},
      {"relu2", Activation::relu2},
      {"xielu", Activation::xielu},
  };
  const auto name = config.string(own_key, config.string("hidden_act", fallback));
  std::vector<std::string> names;
  for (const auto& [known, activation] : kActivations) {
    if (name == known) return activation;
    names.emplace_back(known);
  }
  reject("{}: activation '{}' is not supported; supported are {}", config.where(), name,
         fmt::join(names, ", "));
}

void read_layer_types(ModelConfig& model, const ConfigReader& config, std::int64_t window) {
  const auto types = config.strings("layer_types");
  if (types.size() < model.layers.size())
    reject("{}: layer_types has {} entries, expected {}", config.where(), types.size(),
           model.layers.size());
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (types[i] != "sliding_attention" && types[i] != "full_attention")
      reject("{}: layer_types[{}] is '{}', expected full_attention or sliding_attention",
             config.where(), i, types[i]);
    const bool slides = types[i] == "sliding_attention";
    if (slides && window == 0)
      reject("{}: layer_types[{}] is sliding_attention but no sliding_window is set",
             config.where(), i);
    model.layers[i].window = slides ? window : 0;
  }
}

void read_attention_bias(ModelConfig& model, const ConfigReader& config, bool fallback) {
  model.qkv_bias = model.output_bias = config.flag("attention_bias", fallback);
}

void read_alternating_windows(ModelConfig& model, const ConfigReader& config, std::int64_t window) {
  window = config.positive_integer("sliding_window", window);
  if (config.has_value("layer_types")) return read_layer_types(model, config, window);
  for (std::size_t i = 0; i < model.layers.size(); i += 2) model.layers[i].window = window;
}

void read_periodic_windows(ModelConfig& model, const ConfigReader& config,
                           const SlidingWindowDefaults& defaults) {
  const bool off = config.contains_key("sliding_window") && !config.has_value("sliding_window");
  const auto window = config.positive_integer("sliding_window", off ? 0 : defaults.window);
  if (config.has_value("layer_types")) return read_layer_types(model, config, window);
  if (off) return;
  const auto period = config.positive_integer(defaults.period_key, defaults.period);
  for (std::int64_t i = 0; i < model.n_layers; ++i)
    model.layers[as_index(i)].window = (i + 1) % period == 0 ? 0 : window;
}

void read_uniform_window(ModelConfig& model, const ConfigReader& config) {
  if (!config.has_value("sliding_window")) return;
  for (auto& layer : model.layers) layer.window = config.positive_integer("sliding_window");
}

void read_ropes_by_layer_kind(ModelConfig& model, const ConfigReader& config, double full_theta,
                              double sliding_theta) {
  RopeConfig full;
  full.theta = full_theta;
  full.dim = model.d_head;
  full.max_positions = full.original_max = model.max_positions;
  RopeConfig sliding = full;
  sliding.theta = sliding_theta;
  if (config.has_value("rope_parameters")) {
    const auto parameters = config.section("rope_parameters");
    if (parameters.has_value("full_attention"))
      full = read_rope(full, parameters.section("full_attention"));
    if (parameters.has_value("sliding_attention"))
      sliding = read_rope(sliding, parameters.section("sliding_attention"));
  }
  if (config.has_value("rope_scaling")) full = read_rope(full, config.section("rope_scaling"));
  model.ropes = {full, sliding};
  for (auto& layer : model.layers) layer.rope = layer.window > 0 ? 1 : 0;
}

void read_experts(ModelConfig& model, const ConfigReader& config, const ExpertsDefaults& defaults) {
  constexpr std::int64_t kMostExperts = 4096;  // limits the memory of tensor names
  auto& experts = model.experts;
  const char* count_key = defaults.count_key;
  for (const char* other : {"num_experts", "num_local_experts"})
    if (!config.has_value(count_key)) count_key = other;
  experts.count = config.positive_integer(count_key, defaults.count);
  if (experts.count > kMostExperts)
    config.fail(count_key, fmt::format("at most {} experts", kMostExperts));
  const char* per_token_key =
      config.has_value(defaults.per_token_key) ? defaults.per_token_key : "num_experts_per_tok";
  experts.per_token = config.positive_integer(per_token_key, defaults.per_token);
  if (experts.per_token > experts.count)
    config.fail(per_token_key, fmt::format("at most the {} experts of a layer", experts.count));
  experts.d_mlp = defaults.d_mlp == 0
                      ? model.d_mlp
                      : config.positive_integer("moe_intermediate_size", defaults.d_mlp);
  for (auto& layer : model.layers) layer.experts = true;
  model.names.experts = {{.router = "mlp.gate",
                          .gate = "mlp.experts.{}.gate_proj",
                          .up = "mlp.experts.{}.up_proj",
                          .down = "mlp.experts.{}.down_proj"},
                         {.router = "mlp.gate",  // GGUF
                          .gate = "mlp.experts.gate_proj.weight",
                          .up = "mlp.experts.up_proj.weight",
                          .down = "mlp.experts.down_proj.weight"},
                         stacked_expert_names()};
}

void read_biased_router(ModelConfig& model, const ConfigReader& config, const char* scale_key,
                        const std::string& bias_name, double scale) {
  auto& experts = model.experts;
  experts.normalized = experts.sigmoid = true;
  experts.weight_scale = config.number(scale_key, scale, kScaleFactor);
  for (auto& names : model.names.experts) names.selection_bias = bias_name;
}

void read_shared_experts(ModelConfig& model, const ConfigReader& config, const char* count_key,
                         std::int64_t count) {
  model.experts.shared_d_mlp = config.non_negative_integer(count_key, count) * model.experts.d_mlp;
  for (auto& names : model.names.experts) names.shared = "mlp.shared_experts";
}

ExpertNames stacked_expert_names() {
  return {
      .router = "mlp.gate", .gate_up = "mlp.experts.gate_up_proj", .down = "mlp.experts.down_proj"};
}

std::string rope_type_name(RopeType type) {
  if (type == RopeType::proportional) return "proportional";  // read by read_gemma4 alone
  for (const auto& [known, name] : kRopeTypes)
    if (known == type) return name;
  return "?";
}

RopeConfig read_rope(RopeConfig rope, const ConfigReader& parameters) {
  rope.type = read_rope_type(parameters);
  rope.theta = parameters.number("rope_theta", rope.theta, kRopeTheta);
  rope.original_max =
      parameters.positive_integer("original_max_position_embeddings",
                                  rope.original_max > 0 ? rope.original_max : rope.max_positions);
  if (rope.type == RopeType::standard) return rope;
  const bool may_be_derived = rope.type == RopeType::longrope || rope.type == RopeType::yarn;
  rope.factor =
      may_be_derived && !parameters.has_value("factor")
          ? static_cast<double>(rope.max_positions) / static_cast<double>(rope.original_max)
          : parameters.number("factor", kFactor);
  if (!kFactor.contains(rope.factor))
    reject(
        "{}: max_position_embeddings {} and original_max_position_embeddings {} give the RoPE "
        "factor {}, expected {}",
        parameters.where(), rope.max_positions, rope.original_max, rope.factor,
        kFactor.to_string());
  if (parameters.has_value("attention_factor"))
    rope.attention_factor = parameters.number("attention_factor", kFactor);
  rope.beta_fast = parameters.number("beta_fast", rope.beta_fast, kFactor);
  rope.beta_slow = parameters.number("beta_slow", rope.beta_slow, kFactor);
  rope.mscale = parameters.number("mscale", 0.0, kMagnitude);
  rope.mscale_all_dim = parameters.number("mscale_all_dim", 0.0, kMagnitude);
  rope.truncate = parameters.flag("truncate", true);
  if (rope.type == RopeType::llama3) {
    rope.low_freq_factor = parameters.number("low_freq_factor", kFactor);
    rope.high_freq_factor = parameters.number("high_freq_factor", kFactor);
    if (rope.high_freq_factor <= rope.low_freq_factor)
      parameters.fail("high_freq_factor", "a number above low_freq_factor");
  }
  if (rope.type == RopeType::dynamic && rope.dim == 2)  // dynamic RoPE divides by dim - 2
    reject("{}: rope_type 'dynamic' needs more than 2 rotated dimensions", parameters.where());
  if (rope.type == RopeType::longrope) read_longrope(rope, parameters);
  return rope;
}

}  // namespace qkscope
