// Model families: one file in families/ defines each read_FAMILY below, and one line in the list in
// family.cpp names it. family.cpp also holds what the families share.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/config_reader.h"
#include "model/model_config.h"

namespace qkscope {

struct Family {
  std::string_view model_type;  // as in config.json
  void (*read)(ModelConfig& model, const ConfigReader& config);
};

std::span<const Family> families();

// The Llama base that every family starts from and then changes.
struct LlamaDefaults {
  double rope_theta = 10000.0;
  double norm_eps = 1e-6;
  bool tied = false;
  std::int64_t d_head = 0;  // 0: hidden_size / num_attention_heads
  double partial_rotary_factor = 1.0;
  std::int64_t max_positions = 2048;
};
void read_llama_base(ModelConfig& model, const ConfigReader& config, const LlamaDefaults& defaults);

// rms_norm_eps stands under a root.
inline constexpr ConfigReader::Range kNormEps{0.0, 1.0};

// num_hidden_layers; must be there unless `otherwise` says how many are meant.
std::int64_t read_layer_count(const ConfigReader& config, std::int64_t otherwise = 0);

Activation read_activation(const ConfigReader& config, const std::string& otherwise);

// Windows by layer from layer_types ("sliding_attention", "full_attention"); every entry is
// checked.
void read_layer_types(ModelConfig& model, const ConfigReader& config, std::int64_t window);

// Qwen: sliding_window counts only with use_sliding_window; layers from max_window_layers on slide.
void read_upper_windows(ModelConfig& model, const ConfigReader& config);

void read_llama(ModelConfig& model, const ConfigReader& config);
void read_mistral(ModelConfig& model, const ConfigReader& config);
void read_ministral(ModelConfig& model, const ConfigReader& config);
void read_ministral3(ModelConfig& model, const ConfigReader& config);
void read_qwen2(ModelConfig& model, const ConfigReader& config);
void read_qwen3(ModelConfig& model, const ConfigReader& config);
void read_smollm3(ModelConfig& model, const ConfigReader& config);
void read_mllama(ModelConfig& model, const ConfigReader& config);
void read_gemma3(ModelConfig& model, const ConfigReader& config);
void read_glm(ModelConfig& model, const ConfigReader& config);
void read_glm4(ModelConfig& model, const ConfigReader& config);

}  // namespace qkscope
