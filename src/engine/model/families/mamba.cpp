// Families with Mamba 2 layers, which alternate with attention or run in parallel with it.
#include <algorithm>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/io/json.h"
#include "engine/model/model_config.h"

namespace qkscope {
namespace {

// Checks the sizes of Mamba 2 and sets its tensor names, which start with `module`.
void set_mamba2_config(ModelConfig& model, const ConfigReader& config, MixerConfig mixer,
                       const std::string& module) {
  constexpr std::int64_t kMostStates = 65536;
  mixer.kind = Mixer::mamba2;
  mixer.norm_eps = model.norm_eps;
  if (mixer.value_heads % mixer.key_heads != 0)
    reject("{}: Mamba 2 has {} heads in {} groups, expected a multiple of the groups",
           config.where(), mixer.value_heads, mixer.key_heads);
  for (const auto size : {mixer.value_heads, mixer.d_key, mixer.d_value})
    if (size > kMostStates)
      reject("{}: Mamba 2 has a size of {}, expected at most {}", config.where(), size,
             kMostStates);
  model.mixer = mixer;
  model.names.mixer = {{.input_norm = model.names.input_norm,
                        .mlp_norm = model.names.mlp_norm,
                        .module = module,
                        .all = module + ".in_proj",
                        .convolutions = {module + ".conv1d"},
                        .norm = module + ".norm",
                        .output = module + ".out_proj"}};
}

// Reads time_step_limit, a pair of numbers. The upper limit may be infinite.
void read_time_step_limits(MixerConfig& mixer, const ConfigReader& config) {
  const char* const key = "time_step_limit";
  if (!config.has_value(key)) return;
  const Json& limits = config.raw_value(key);
  const bool pair = limits.is_array() && limits.size() == 2 && limits[0].is_number();
  const bool infinite = pair && limits[1] == Json{{"__float__", "Infinity"}};
  if (!pair || !(infinite || limits[1].is_number()))
    config.fail(key, "two numbers, of which the second may be Infinity");
  mixer.least_rate = limits[0].get<double>();
  if (!infinite) mixer.most_rate = limits[1].get<double>();
  if (!(mixer.least_rate >= 0.0 && mixer.most_rate >= mixer.least_rate))
    config.fail(key, "a least step from 0 on and a most step above it");
}

// Reads the Mamba 2 keys of Falcon-H1 and Granite 4. `width` is the total width of all heads.
MixerConfig read_mamba2_config(const ModelConfig& model, const ConfigReader& config,
                               std::int64_t width) {
  if (model.activation != Activation::silu)
    config.fail("hidden_act", "silu, the activation of the convolution");
  const bool proj_bias = config.flag("mamba_proj_bias", false);
  MixerConfig mixer{.key_heads = config.positive_integer("mamba_n_groups", 1),
                    .value_heads = config.positive_integer("mamba_n_heads", 128),
                    .d_key = config.positive_integer("mamba_d_state", 256),
                    .taps = read_convolution_kernel_size(config, "mamba_d_conv", 4),
                    .gate_before_norm = true,
                    .input_bias = proj_bias,
                    .convolution_bias = config.flag("mamba_conv_bias", true),
                    .output_bias = proj_bias};
  if (width % mixer.value_heads != 0)
    config.fail("mamba_n_heads", fmt::format("a divisor of the {} dimensions of all heads", width));
  mixer.d_value = width / mixer.value_heads;
  const bool given =
      config.has_value("mamba_d_head") && !config.raw_value("mamba_d_head").is_string();
  const auto d_head = given ? config.positive_integer("mamba_d_head") : mixer.d_value;
  if (d_head != mixer.d_value || (!given && config.string("mamba_d_head", "auto") != "auto"))
    config.fail("mamba_d_head", fmt::format("auto or {}", mixer.d_value));
  read_time_step_limits(mixer, config);
  return mixer;
}

// Layer types of Nemotron-H, one letter each: M (Mamba 2), * (attention), - (MLP), E (experts).
std::string read_nemotron_pattern(const ConfigReader& config) {
  static constexpr std::pair<const char*, char> kTypes[] = {
      {"linear_attention", 'M'}, {"mamba", 'M'}, {"full_attention", '*'},
      {"attention", '*'},        {"mlp", '-'},   {"moe", 'E'}};
  std::string letters;
  for (const char* key : {"layers_block_type", "layer_types"}) {
    if (!config.has_value(key)) continue;
    for (const auto& type : config.strings(key)) {
      const auto known =
          std::ranges::find(kTypes, type, [](const auto& t) { return std::string(t.first); });
      if (known == std::end(kTypes))
        config.fail(key, "a list of linear_attention, full_attention, mlp and moe");
      letters += known->second;
    }
    return letters;
  }
  letters = config.string("hybrid_override_pattern", "ME*-");
  if (letters.find_first_not_of("M*-E") != std::string::npos)
    config.fail("hybrid_override_pattern", "the letters M, *, - and E");
  return letters;
}

// Reads the experts of Nemotron-H: no gate, a biased sigmoid router, and a shared expert.
void read_nemotron_experts(ModelConfig& model, const ConfigReader& config) {
  if (config.has_value("moe_latent_size"))
    config.fail("moe_latent_size", "null: experts with a latent input are not supported");
  if (model.mlp_bias) config.fail("mlp_bias", "false in a model with experts");
  const auto layers = model.layers;
  read_experts(model, config,
               {.count = 8, .per_token = 2, .d_mlp = 7688, .count_key = "n_routed_experts"});
  model.layers = layers;  // only some have experts
  ExpertNames names{.router = "mixer.gate",
                    .shared = "mixer.shared_experts",
                    .up = "mixer.experts.{}.up_proj",
                    .down = "mixer.experts.{}.down_proj"};
  model.names.experts.front() = names;
  names.up = "mixer.experts.up_proj";
  names.down = "mixer.experts.down_proj";
  model.names.experts.back() = names;
  read_biased_router(model, config, "routed_scaling_factor", "mixer.gate.e_score_correction_bias");
  model.experts.normalized = config.flag("norm_topk_prob", true);
  read_expert_groups(model, config);
  model.experts.shared_d_mlp = config.positive_integer("moe_shared_expert_intermediate_size", 7688);
}

void set_nemotron_tensor_names(TensorNames& names) {
  names.embedding = "embeddings";
  names.final_norm = "norm_f";
  names.input_norm = names.mlp_norm = "norm";
  names.q = "mixer.q_proj";
  names.k = "mixer.k_proj";
  names.v = "mixer.v_proj";
  names.o = "mixer.o_proj";
  names.gate = "";
  names.up = "mixer.up_proj";
  names.down = "mixer.down_proj";
  names.unused = {"mtp."};
}

void read_nemotron_mamba2(ModelConfig& model, const ConfigReader& config) {
  if (config.string("mamba_hidden_act", "silu") != "silu")
    config.fail("mamba_hidden_act", "silu, the activation of the convolution");
  // Some config keys have an older name, which takes precedence if both are present.
  const auto either = [&](const char* key, const char* older) {
    return config.has_value(older) ? older : key;
  };
  const bool bias = config.flag("use_bias", false);
  set_mamba2_config(
      model, config,
      {.key_heads = config.positive_integer(either("n_groups", "mamba_n_groups"), 8),
       .value_heads = config.positive_integer("mamba_num_heads", 128),
       .d_key = config.positive_integer("ssm_state_size", 128),
       .d_value = config.positive_integer("mamba_head_dim", 64),
       .taps = read_convolution_kernel_size(config, either("conv_kernel", "mamba_d_conv"), 4),
       .least_rate = config.number(either("time_step_min", "mamba_dt_min"), 0.001, {0.0, 1e6}),
       .gate_before_norm = true,
       .input_bias = bias,
       .convolution_bias = config.flag(either("use_conv_bias", "mamba_conv_bias"), true),
       .output_bias = bias},
      "mixer");
}

}  // namespace

// Falcon-H1: attention and Mamba 2 in parallel in every layer; scale factors on all projections.
void read_falcon_h1(ModelConfig& model, const ConfigReader& config) {
  read_llama_config(model, config, {.norm_eps = 1e-5, .n_kv_heads = 8, .max_positions = 8192});
  read_attention_bias(model, config, false);
  model.mlp_bias = config.flag("mlp_bias", false);
  const auto factor = [&](const char* key) { return config.number(key, 1.0, kScaleFactor); };
  const auto factors = [&](const char* key, std::size_t count) {
    if (!config.has_value(key)) return std::vector<double>(count, 1.0);
    auto numbers = config.numbers(key, kScaleFactor);
    if (numbers.size() != count) config.fail(key, fmt::format("{} numbers", count));
    return numbers;
  };
  model.embedding_scale = factor("embedding_multiplier");
  model.logit_scale = factor("lm_head_multiplier");
  auto& scales = model.projection_scales;
  scales = {.attention_input = factor("attention_in_multiplier"),
            .k = factor("key_multiplier"),
            .o = factor("attention_out_multiplier"),
            .gate = factors("mlp_multipliers", 2)[0],
            .down = factors("mlp_multipliers", 2)[1],
            .mixer_input = factor("ssm_in_multiplier"),
            .mixer_output = factor("ssm_out_multiplier")};
  std::ranges::copy(factors("ssm_multipliers", 5), scales.mixer.begin());
  auto& names = model.names;
  names.mlp_norm = "pre_ff_layernorm";
  names.final_norm = "final_layernorm";
  names.gate = "feed_forward.gate_proj";
  names.up = "feed_forward.up_proj";
  names.down = "feed_forward.down_proj";
  const bool expands = config.contains_key("mamba_d_ssm") && !config.has_value("mamba_d_ssm");
  const auto width = expands ? config.positive_integer("mamba_expand", 2) * model.d_model
                             : config.positive_integer("mamba_d_ssm", 1024);
  auto mixer = read_mamba2_config(model, config, width);
  mixer.gate_before_norm = !config.flag("mamba_norm_before_gate", true);
  mixer.output_bias = config.flag("projectors_bias", false);
  set_mamba2_config(model, config, mixer, "mamba");
  if (!config.flag("mamba_rms_norm", false)) names.mixer.front().norm = "";
  for (auto& layer : model.layers) {
    layer.mixer = Mixer::mamba2;
    layer.attention_beside = true;
  }
}

// Granite 4: mostly Mamba 2 in place of attention. If experts exist, the MLP is the shared expert.
void read_granitemoehybrid(ModelConfig& model, const ConfigReader& config) {
  read_granite(model, config);
  model.mlp_bias = false;
  if (config.string("position_embedding_type", "") != "rope") {
    model.ropes.clear();
    for (auto& layer : model.layers) layer.rope = -1;
  }
  const char* const types = config.has_value("layer_types") ? "layer_types" : "layers_block_type";
  read_layer_mixers(model, config, "linear_attention", Mixer::mamba2, types);
  auto& names = model.names;
  names.gate_up = "shared_mlp.input_linear";
  names.down = "shared_mlp.output_linear";
  const auto width = config.positive_integer("mamba_expand", 2) * model.d_model;
  if (std::ranges::any_of(model.layers, &LayerConfig::has_state))
    set_mamba2_config(model, config, read_mamba2_config(model, config, width), "mamba");
  const auto shared = config.positive_integer("shared_intermediate_size", 1024);
  names.experts = {{}, {.dense = "mlp"}};  // Hugging Face and GGUF names of models without experts
  if (config.non_negative_integer("num_local_experts", 8) > 0) {
    read_experts(model, config, {.count = 8, .per_token = 2});
    model.experts.normalized = true;
    model.experts.shared_d_mlp = shared;
    names.experts.front() = {.router = "block_sparse_moe.router.layer",
                             .gate_up = "block_sparse_moe.input_linear.weight",
                             .down = "block_sparse_moe.output_linear.weight"};
    names.experts[1].shared = "mlp.shared_experts";  // GGUF
    names.experts.back() = {.router = "block_sparse_moe.router",
                            .gate_up = "block_sparse_moe.experts.gate_up_proj",
                            .down = "block_sparse_moe.experts.down_proj"};
  }
  model.d_mlp = shared;
}

// Nemotron-H: every layer has one norm and is Mamba 2, attention without RoPE, an MLP without a
// gate, or experts. Clamps the time steps of Mamba 2 to a minimum, like transformers.
void read_nemotron_h(ModelConfig& model, const ConfigReader& config) {
  const auto types = read_nemotron_pattern(config);
  read_llama_config_without_rope(model, config,
                                 {.norm_eps = 1e-5,
                                  .norm_eps_key = "layer_norm_epsilon",
                                  .activation = "relu2",
                                  .d_head = 128,
                                  .n_kv_heads = 8,
                                  .n_layers = std::ssize(types),
                                  .max_positions = 4096});
  model.activation = config.has_value("mlp_hidden_act")
                         ? read_activation(config, "", "mlp_hidden_act")
                         : Activation::relu2;
  model.tied = false;
  model.mlp_bias = config.flag("mlp_bias", false);
  set_nemotron_tensor_names(model.names);
  for (std::size_t i = 0; i < types.size(); ++i) {
    auto& layer = model.layers[i];
    set_mixer(layer, types[i] == '*'   ? Mixer::attention
                     : types[i] == 'M' ? Mixer::mamba2
                                       : Mixer::none);
    layer.mlp = layer.mixer == Mixer::none;
    layer.experts = types[i] == 'E';
  }
  if (types.find('*') == std::string::npos)
    reject("{}: no layer has attention, expected at least one", config.where());
  if (types.find('E') != std::string::npos) read_nemotron_experts(model, config);
  if (types.find('M') == std::string::npos) return;
  read_nemotron_mamba2(model, config);
}

}  // namespace qkscope
