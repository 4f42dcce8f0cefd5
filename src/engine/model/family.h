// Model families: one file in families/ defines each read_FAMILY below, and one line in the list in
// family.cpp names it. family.cpp also holds what families share.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/model/config_reader.h"
#include "engine/model/model_config.h"

namespace qkscope {

struct Family {
  std::string_view model_type;  // as in config.json
  std::string_view models;      // as people know them
  void (*read)(ModelConfig& model, const ConfigReader& config);
};

std::span<const Family> families();

// The Llama base that every family starts from and then changes.
struct LlamaDefaults {
  double rope_theta = 10000.0;
  double norm_eps = 1e-6;
  const char* norm_eps_key = "rms_norm_eps";
  const char* activation = "silu";
  bool tied = false;
  std::int64_t d_head = 0;  // 0: hidden_size / num_attention_heads
  double partial_rotary_factor = 1.0;
  std::int64_t max_positions = 2048;
};
void read_llama_base(ModelConfig& model, const ConfigReader& config, const LlamaDefaults& defaults);

// The two halves of it: all but RoPE, and the one RoPE of all layers, as rope_parameters or as
// rope_theta with rope_scaling.
void read_llama_body(ModelConfig& model, const ConfigReader& config, const LlamaDefaults& defaults);
RopeConfig read_llama_rope(const ModelConfig& model, const ConfigReader& config,
                           const LlamaDefaults& defaults);

// The norm's epsilon stands under a root.
inline constexpr ConfigReader::Range kNormEps{0.0, 1.0};

// The number of layers; must be there unless `otherwise` says how many are meant.
std::int64_t read_layer_count(const ConfigReader& config, std::int64_t otherwise = 0,
                              const char* key = "num_hidden_layers");

// hidden_activation or hidden_act; a family may have a key of its own.
Activation read_activation(const ConfigReader& config, const std::string& otherwise,
                           const char* own_key = "hidden_activation");

// Windows by layer from layer_types ("sliding_attention", "full_attention"); every entry is
// checked.
void read_layer_types(ModelConfig& model, const ConfigReader& config, std::int64_t window);

// sliding_window, where it is there: every layer slides.
void read_window_of_all(ModelConfig& model, const ConfigReader& config);

// Two ropes, the first for full layers and the second for sliding ones: rope_parameters has one map
// per kind of layer; the older spelling has rope_theta and rope_scaling for full layers.
void read_ropes_by_kind(ModelConfig& model, const ConfigReader& config, double full_theta,
                        double sliding_theta);

// Qwen: sliding_window counts only with use_sliding_window; layers from max_window_layers on slide.
void read_upper_windows(ModelConfig& model, const ConfigReader& config);

// Sizes of a mixture of experts: the number of them under `count_key`, and num_experts_per_tok;
// what is not said is as here.
struct ExpertsDefaults {
  const char* count_key;
  std::int64_t count;
  std::int64_t per_token;
  std::int64_t d_mlp;
};
void read_experts(ModelConfig& model, const ConfigReader& config, const ExpertsDefaults& defaults);

// The names under which transformers saves all experts of a layer in one tensor.
ExpertNames experts_in_one_tensor();

void read_llama(ModelConfig& model, const ConfigReader& config);
void read_mistral(ModelConfig& model, const ConfigReader& config);
void read_ministral(ModelConfig& model, const ConfigReader& config);
void read_ministral3(ModelConfig& model, const ConfigReader& config);
void read_qwen2(ModelConfig& model, const ConfigReader& config);
void read_qwen3(ModelConfig& model, const ConfigReader& config);
void read_smollm3(ModelConfig& model, const ConfigReader& config);
void read_mllama(ModelConfig& model, const ConfigReader& config);
void read_gemma2(ModelConfig& model, const ConfigReader& config);
void read_gemma3(ModelConfig& model, const ConfigReader& config);
void read_glm(ModelConfig& model, const ConfigReader& config);
void read_glm4(ModelConfig& model, const ConfigReader& config);
void read_gpt_neox(ModelConfig& model, const ConfigReader& config);
void read_gpt2(ModelConfig& model, const ConfigReader& config);
void read_olmo(ModelConfig& model, const ConfigReader& config);
void read_olmo2(ModelConfig& model, const ConfigReader& config);
void read_olmo3(ModelConfig& model, const ConfigReader& config);
void read_phi3(ModelConfig& model, const ConfigReader& config);
void read_granite(ModelConfig& model, const ConfigReader& config);
void read_starcoder2(ModelConfig& model, const ConfigReader& config);
void read_apertus(ModelConfig& model, const ConfigReader& config);
void read_qwen3_moe(ModelConfig& model, const ConfigReader& config);
void read_mixtral(ModelConfig& model, const ConfigReader& config);
void read_gpt_oss(ModelConfig& model, const ConfigReader& config);

// What Gemma 2 and 3 share; a text_config may leave most of it out.
struct GemmaDefaults {
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 0;
};
void read_gemma_base(ModelConfig& model, const ConfigReader& config, const GemmaDefaults& defaults);

// OLMo 2 without its RoPE: OLMo 3 has another.
void read_olmo2_body(ModelConfig& model, const ConfigReader& config);

}  // namespace qkscope
