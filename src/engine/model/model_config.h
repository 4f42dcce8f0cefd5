// Parses config.json of any model family into a ModelConfig. The readers of model families are in
// families/, their list and shared readers in family.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/io/json_fwd.h"
#include "qkscope/model.h"

namespace qkscope {

// Typed access to a JSON object of a Hugging Face config.json. A null value counts as absent. Every
// error names the key, the value found and the value expected.
class ConfigReader {
 public:
  // Inclusive range of valid values; NaN is outside every range.
  struct NumberRange {
    double least, most;
    bool contains(double value) const { return value >= least && value <= most; }
    std::string to_string() const;
  };

  // `where` names the JSON object in messages: "config.json" or "config.json: text_config".
  ConfigReader(const Json& object, std::string where);

  const std::string& where() const { return where_; }
  bool has_value(const std::string& key) const;     // present and not null
  bool contains_key(const std::string& key) const;  // null counts as present
  const Json& raw_value(const std::string& key) const;
  ConfigReader section(const std::string& key) const;  // a nested object

  std::int64_t positive_integer(const std::string& key) const;  // a required positive integer
  std::int64_t positive_integer(const std::string& key, std::int64_t fallback) const {
    return has_value(key) ? positive_integer(key) : fallback;
  }
  std::int64_t non_negative_integer(const std::string& key, std::int64_t fallback) const;
  double number(const std::string& key, NumberRange range) const;
  double number(const std::string& key, double fallback, NumberRange range) const {
    return has_value(key) ? number(key, range) : fallback;
  }
  // flag() and string() return `fallback` if the key is absent. Keys with list values are required.
  bool flag(const std::string& key, bool fallback) const;
  std::string string(const std::string& key, const std::string& fallback) const;
  std::vector<std::int64_t> integers(const std::string& key) const;
  std::vector<double> numbers(const std::string& key, NumberRange range) const;
  std::vector<std::string> strings(const std::string& key) const;

  // Throws a bad_input error that quotes the value of `key`.
  [[noreturn]] void fail(const std::string& key, const std::string& expected) const;

 private:
  const Json* object_;
  std::string where_;
};

// Parses config.json after overrides were merged. `where` names the file in messages.
ModelConfig parse_model_config(const Json& config, const std::string& where);

// Throws a bad-input error that begins with `what` unless ModelConfig::has_equal_heads().
void require_uniform_head_shapes(const ModelConfig& model, const std::string& what);

// Returns the layers with softmax attention, or the layers without it, as a list like "0-2, 4".
std::string format_layer_ranges_by_attention(const ModelConfig& model, bool attention);

// Logs which layers have no attention, once per distinct list; logs nothing if all layers have it.
void log_layers_without_attention(const ModelConfig& model);

struct ModelFamilySpec {
  std::string_view model_type;  // value of model_type in config.json
  std::string_view models;      // common names of the models
  void (*read)(ModelConfig& model, const ConfigReader& config);
};

std::span<const ModelFamilySpec> model_family_specs();
// Returns true if parse_model_config() supports the model_type, alone or in a multimodal model.
bool is_supported_model_type(const std::string& model_type);

// Default values and key names of the Llama configuration, from which most families start.
struct LlamaDefaults {
  double rope_theta = 10000.0;
  double norm_eps = 1e-6;
  const char* norm_eps_key = "rms_norm_eps";
  const char* activation = "silu";
  bool tied = false;
  std::int64_t d_head = 0;      // 0 means hidden_size / num_attention_heads
  std::int64_t n_kv_heads = 0;  // default of num_key_value_heads; 0: num_attention_heads
  const char* d_mlp_key = "intermediate_size";
  std::int64_t n_layers = 0;  // 0 means num_hidden_layers
  double partial_rotary_factor = 1.0;
  std::int64_t max_positions = 2048;
};
void read_llama_config(ModelConfig& model, const ConfigReader& config,
                       const LlamaDefaults& defaults);

// The two parts of read_llama_config: all settings except RoPE, and the RoPE settings of all
// layers, given as rope_parameters or as rope_theta with rope_scaling.
void read_llama_config_without_rope(ModelConfig& model, const ConfigReader& config,
                                    const LlamaDefaults& defaults);
RopeConfig read_llama_rope(const ModelConfig& model, const ConfigReader& config,
                           const LlamaDefaults& defaults);

inline constexpr ConfigReader::NumberRange kNormEps{0.0, 1.0};
inline constexpr ConfigReader::NumberRange kScaleFactor{1e-6, 1e6};

// Reads the number of layers. The key is required if `fallback` is 0.
std::int64_t read_layer_count(const ConfigReader& config, std::int64_t fallback = 0,
                              const char* key = "num_hidden_layers");

// Reads hidden_activation or hidden_act; some families use their own key.
Activation read_activation(const ConfigReader& config, const std::string& fallback,
                           const char* own_key = "hidden_activation");

// Sets window sizes from layer_types ("sliding_attention" or "full_attention" per layer).
void read_layer_types(ModelConfig& model, const ConfigReader& config, std::int64_t window);

// Reads attention_bias, the bias of q, k, v and the output projection.
void read_attention_bias(ModelConfig& model, const ConfigReader& config, bool fallback);

// Reads layer_types and sliding_window. Without layer_types, the window applies to every second
// layer starting at layer 0 (alternating), or to all but every `period`-th layer (periodic). A
// sliding_window of null switches periodic windows off.
struct SlidingWindowDefaults {
  const char* period_key = "";  // empty: the period is fixed
  std::int64_t period = 4;
  std::int64_t window = 4096;
};
void read_alternating_windows(ModelConfig& model, const ConfigReader& config, std::int64_t window);
void read_periodic_windows(ModelConfig& model, const ConfigReader& config,
                           const SlidingWindowDefaults& defaults);

void read_uniform_window(ModelConfig& model, const ConfigReader& config);

// Reads two RoPE settings, for layers with full and with sliding-window attention. rope_parameters
// has one object for each; older files have rope_theta and rope_scaling for full attention.
void read_ropes_by_layer_kind(ModelConfig& model, const ConfigReader& config, double full_theta,
                              double sliding_theta);

// Reads the number and width of experts and the number per token; enables experts in all layers.
struct ExpertsDefaults {
  std::int64_t count;
  std::int64_t per_token;
  std::int64_t d_mlp = 0;          // default of moe_intermediate_size; 0: read intermediate_size
  const char* count_key = "";      // config key to try before num_experts, num_local_experts
  const char* per_token_key = "";  // config key to try before num_experts_per_tok
};
void read_experts(ModelConfig& model, const ConfigReader& config, const ExpertsDefaults& defaults);

// Read a sigmoid router with selection bias, and shared experts. Call after read_experts().
void read_biased_router(ModelConfig& model, const ConfigReader& config, const char* scale_key,
                        const std::string& bias_name, double scale = 1.0);
void read_shared_experts(ModelConfig& model, const ConfigReader& config, const char* count_key,
                         std::int64_t count);

// Read the router's expert groups and how many leading layers are dense. Call after read_experts().
void read_expert_groups(ModelConfig& model, const ConfigReader& config, std::int64_t groups = 1,
                        std::int64_t chosen = 1);
void read_first_dense_layers(ModelConfig& model, const ConfigReader& config, std::int64_t dense,
                             const char* key = "first_k_dense_replace");

// Reads which layers have experts: decoder_sparse_step, mlp_only_layers. Call after read_experts().
void read_expert_layers(ModelConfig& model, const ConfigReader& config);

// Sets the mixer of a layer and removes its position encoding.
void set_mixer(LayerConfig& layer, Mixer mixer);

// Reads the type of each layer from the list at `key`: "full_attention", or `name` for `mixer`. At
// least one layer must have attention. Mamba 2 also accepts "attention" and "mamba".
void read_layer_mixers(ModelConfig& model, const ConfigReader& config, const std::string& name,
                       Mixer mixer, const char* key = "layer_types");

std::int64_t read_convolution_kernel_size(const ConfigReader& config, const char* key,
                                          std::int64_t fallback);

// Returns tensor names of checkpoints that store all experts of a layer in one tensor.
ExpertNames stacked_expert_names();

// One reader per model family, with the signature of ModelFamilySpec::read.
using ModelFamilyReader = void(ModelConfig& model, const ConfigReader& config);
ModelFamilyReader read_afmoe, read_apertus, read_cohere2, read_deepseek_v2, read_deepseek_v3,
    read_ernie4_5, read_ernie4_5_moe, read_exaone4, read_falcon_h1, read_gemma2, read_gemma3,
    read_gemma4, read_glm, read_glm4, read_glm4_moe, read_gpt2, read_gpt_neox, read_gpt_oss,
    read_granite, read_granitemoehybrid, read_hunyuan_v1_dense, read_kimi_linear, read_lfm2,
    read_llama, read_llama4, read_minimax_m2, read_ministral, read_ministral3, read_mistral,
    read_mixtral, read_mllama, read_nanochat, read_nemotron_h, read_olmo, read_olmo2, read_olmo3,
    read_olmo_hybrid, read_olmoe, read_phi3, read_qwen2, read_qwen3, read_qwen3_5, read_qwen3_moe,
    read_qwen3_next, read_seed_oss, read_smollm3, read_starcoder2;

// Valid RoPE bases (theta). Below 1, frequencies would grow with the dimension; models reach 1e11.
inline constexpr ConfigReader::NumberRange kRopeTheta{1.01, 1e15};

// Applies a rope_scaling or rope_parameters object to `rope`, whose theta, dim and max_positions
// are already set. Accepts the key rope_type or its older name, `type`.
RopeConfig read_rope(RopeConfig rope, const ConfigReader& parameters);

}  // namespace qkscope
