#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/project.h"
#include "base/core/text.h"
#include "input/checkpoint/gguf.h"

namespace qkscope {
namespace {

struct GgufArchitecture {
  const char* name;                 // value of general.architecture
  const char* model_type;           // model_type in config.json
  bool interleaves_heads = false;   // the converter permutes the rows of q and k
  bool is_gemma = false;            // four norms per layer, stored as 1 + weight
  bool is_fused = false;            // gate and up projection are one matrix, ffn_up
  std::int64_t largest_layers = 0;  // layers of the largest variant
};

constexpr std::array kArchitectures = {
    GgufArchitecture{.name = "llama", .model_type = "llama", .interleaves_heads = true},
    GgufArchitecture{.name = "qwen2", .model_type = "qwen2"},
    GgufArchitecture{.name = "qwen3", .model_type = "qwen3"},
    GgufArchitecture{.name = "smollm3", .model_type = "smollm3", .interleaves_heads = true},
    GgufArchitecture{
        .name = "gemma2", .model_type = "gemma2", .is_gemma = true, .largest_layers = 46},
    GgufArchitecture{
        .name = "gemma3", .model_type = "gemma3_text", .is_gemma = true, .largest_layers = 62},
    GgufArchitecture{.name = "phi3", .model_type = "phi3", .is_fused = true},
};

constexpr const char* kFrequencyFactors = "rope_freqs.weight";
constexpr const char* kShortFactors = "rope_factors_short.weight";
constexpr const char* kLongFactors = "rope_factors_long.weight";

const GgufArchitecture& find_architecture(const GgufMetadata& metadata) {
  const auto name = metadata.text("general.architecture");
  for (const auto& architecture : kArchitectures)
    if (name == architecture.name) return architecture;
  bad_input("{}: the architecture {} is not supported in GGUF files; supported are {}",
            metadata.where(), quote_text(name),
            fmt::join(project(kArchitectures, &GgufArchitecture::name), ", "));
}

// GGUF stores settings as float32. Returns the shortest decimal that rounds to the same float32, as
// in config.json: 1e-05 instead of 9.999999747378752e-06.
double shortest_decimal(double stored) {
  const auto single = static_cast<float>(stored);
  if (static_cast<double>(single) != stored) return stored;
  const auto digits = fmt::format("{}", single);
  double written = stored;
  std::from_chars(digits.data(), digits.data() + digits.size(), written);
  return written;
}

class GgufConfigConverter {
 public:
  GgufConfigConverter(const GgufArchitecture& architecture, const GgufHeader& header,
                      std::span<const std::byte> file, const GgufMetadata& metadata)
      : architecture_(architecture), header_(header), file_(file), metadata_(metadata) {}

  Json write() {
    if (metadata_.natural_number(key("expert_count"), 0) > 0)
      bad_input("{}: a mixture of experts, which is not supported in GGUF files",
                metadata_.where());
    config_["model_type"] = architecture_.model_type;
    config_["dtype"] = weight_dtype();
    write_sizes();
    config_["rms_norm_eps"] = number("attention.layer_norm_rms_epsilon");
    config_["tie_word_embeddings"] = !header_.tensors.contains("output.weight");
    config_["attention_bias"] = header_.tensors.contains("blk.0.attn_q.bias");
    config_["mlp_bias"] = header_.tensors.contains("blk.0.ffn_up.bias");
    write_sliding_window();
    write_rope();
    if (architecture_.is_gemma) write_gemma();
    return std::move(config_);
  }

 private:
  std::string key(const char* name) const { return fmt::format("{}.{}", architecture_.name, name); }
  bool has(const char* name) const { return metadata_.has(key(name)); }
  double number(const char* name) const { return shortest_decimal(metadata_.number(key(name))); }

  // DType of the weights in memory; quantized blocks become float32.
  std::string_view weight_dtype() const {
    const auto found = header_.tensors.find("blk.0.ffn_down.weight");
    const bool plain = found != header_.tensors.end() && found->second.type->plain;
    return dtype_name(plain ? *found->second.type->plain : DType::f32);
  }

  // Accepts a single number, or a list with the same number for every layer.
  std::int64_t uniform_number(const char* name) const {
    const auto& value = metadata_.at(key(name));
    if (!value.is_array()) return metadata_.natural_number(key(name));
    const bool same = !value.empty() && value.front().is_number_unsigned() &&
                      std::ranges::count(value, value.front()) == std::ssize(value);
    if (!same) metadata_.fail(key(name), "one number for all layers");
    return value.front().get<std::int64_t>();
  }

  void write_sizes() {
    d_model_ = metadata_.natural_number(key("embedding_length"));
    n_heads_ = uniform_number("attention.head_count");
    n_layers_ = metadata_.natural_number(key("block_count"));
    if (n_heads_ == 0) metadata_.fail(key("attention.head_count"), "one or more");
    d_head_ = metadata_.natural_number(key("attention.key_length"), d_model_ / n_heads_);
    if (metadata_.natural_number(key("attention.value_length"), d_head_) != d_head_)
      metadata_.fail(key("attention.value_length"), fmt::format("{}, the length of keys", d_head_));
    config_["hidden_size"] = d_model_;
    config_["num_hidden_layers"] = n_layers_;
    config_["num_attention_heads"] = n_heads_;
    config_["num_key_value_heads"] =
        has("attention.head_count_kv") ? uniform_number("attention.head_count_kv") : n_heads_;
    config_["head_dim"] = d_head_;
    config_["intermediate_size"] = uniform_number("feed_forward_length");
    config_["max_position_embeddings"] = metadata_.natural_number(key("context_length"));
    const auto embedding = header_.tensors.find("token_embd.weight");
    if (embedding == header_.tensors.end() || embedding->second.shape.size() != 2)
      bad_input("{}: expected a tensor 'token_embd.weight' of two dimensions", metadata_.where());
    config_["vocab_size"] = embedding->second.shape.front();
  }

  void write_sliding_window() {
    const auto window = metadata_.natural_number(key("attention.sliding_window"), 0);
    if (window == 0) return;
    if (!architecture_.is_gemma && !architecture_.is_fused)
      metadata_.fail(key("attention.sliding_window"), "none, as models of this architecture have");
    config_["sliding_window"] = window;
    if (has("attention.sliding_window_pattern")) write_pattern();
  }

  // sliding_window_pattern is a period (every n-th layer has full attention) or a list of booleans.
  void write_pattern() {
    const auto name = key("attention.sliding_window_pattern");
    const Json& pattern = metadata_.at(name);
    if (!pattern.is_array()) {
      config_["sliding_window_pattern"] = metadata_.natural_number(name);
      return;
    }
    for (const Json& slides : pattern) {
      if (!slides.is_boolean()) metadata_.fail(name, "a number, or true or false for each layer");
      config_["layer_types"].push_back(slides.get<bool>() ? "sliding_attention" : "full_attention");
    }
  }

  void write_rope() {
    config_["rope_theta"] = number("rope.freq_base");
    const auto rotated = metadata_.natural_number(key("rope.dimension_count"), d_head_);
    if (rotated != d_head_) {
      if (!architecture_.is_fused)
        metadata_.fail(key("rope.dimension_count"), fmt::format("{}, the length of keys", d_head_));
      config_["partial_rotary_factor"] =
          static_cast<double>(rotated) / static_cast<double>(d_head_);
    }
    if (header_.tensors.contains(kFrequencyFactors))
      write_factors(kFrequencyFactors, kFrequencyFactors);
    else if (header_.tensors.contains(kShortFactors) && header_.tensors.contains(kLongFactors))
      write_factors(kShortFactors, kLongFactors);
    else
      write_scaling(metadata_.text(key("rope.scaling.type"), "none"));
  }

  // GGUF stores one divisor per RoPE frequency for longrope and for llama3 models. The config.json
  // returned here uses longrope for both.
  void write_factors(const char* short_name, const char* long_name) {
    const auto positions = config_["max_position_embeddings"].get<std::int64_t>();
    Json& scaling = config_["rope_scaling"];
    scaling["rope_type"] = "longrope";
    scaling["short_factor"] = read_factors(short_name);
    scaling["long_factor"] = read_factors(long_name);
    scaling["factor"] = 1.0;
    scaling["attention_factor"] =
        has("rope.scaling.attn_factor") ? number("rope.scaling.attn_factor") : 1.0;
    // longrope switches factors at this position; no effect if both factor lists are identical.
    scaling["original_max_position_embeddings"] =
        metadata_.natural_number(key("rope.scaling.original_context_length"), positions);
  }

  Json read_factors(const char* name) const {
    constexpr std::int64_t kMost = 1 << 16;
    const auto& tensor = header_.tensors.at(name);
    if (tensor.element_count() > kMost)
      bad_input("{}: tensor {} has {} elements, expected a factor for each frequency",
                metadata_.where(), quote_text(name), tensor.element_count());
    std::vector<float> values(static_cast<std::size_t>(tensor.element_count()));
    dequantize_blocks(*tensor.type, file_.subspan(tensor.begin, tensor.end - tensor.begin),
                      values.data());
    return values;
  }

  void write_scaling(const std::string& type) {
    if (type == "none") return;
    if (type != "linear" && type != "yarn")
      metadata_.fail(key("rope.scaling.type"),
                     "none, linear or yarn, where the file has no factors of frequencies");
    Json& scaling = config_["rope_scaling"];
    scaling["rope_type"] = type;
    scaling["factor"] = number("rope.scaling.factor");
    if (type == "linear") return;
    if (has("rope.scaling.original_context_length"))
      scaling["original_max_position_embeddings"] =
          metadata_.natural_number(key("rope.scaling.original_context_length"));
    for (const auto& [name, setting] : {std::pair{"rope.scaling.yarn_beta_fast", "beta_fast"},
                                        std::pair{"rope.scaling.yarn_beta_slow", "beta_slow"}})
      if (has(name)) scaling[setting] = number(name);
    for (const auto* name : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor",
                             "rope.scaling.yarn_log_multiplier"})
      if (has(name) && number(name) != 1.0)
        metadata_.fail(key(name), "1, as models of this architecture have");
  }

  void write_gemma() {
    // GGUF does not store query_pre_attn_scalar. It is d_head except in the largest Gemma variant.
    config_["query_pre_attn_scalar"] =
        n_layers_ == architecture_.largest_layers ? d_model_ / n_heads_ : d_head_;
    for (const auto* name : {"attn_logit_softcapping", "final_logit_softcapping"})
      if (has(name)) config_[name] = number(name);
    if (has("rope.freq_base_swa")) config_["rope_local_base_freq"] = number("rope.freq_base_swa");
  }

  const GgufArchitecture& architecture_;
  const GgufHeader& header_;
  std::span<const std::byte> file_;
  const GgufMetadata& metadata_;
  Json config_ = Json::object();
  std::int64_t d_model_ = 0, n_heads_ = 0, n_layers_ = 0, d_head_ = 0;
};

// Maps "attn_q" of "blk.3.attn_q.weight" to the module name in a Hugging Face layer.
struct GgufModuleName {
  const char* stored;
  const char* name;
};
constexpr std::array kModules = {
    GgufModuleName{"attn_norm", "input_layernorm"},
    GgufModuleName{"attn_q", "self_attn.q_proj"},
    GgufModuleName{"attn_k", "self_attn.k_proj"},
    GgufModuleName{"attn_v", "self_attn.v_proj"},
    GgufModuleName{"attn_qkv", "self_attn.qkv_proj"},
    GgufModuleName{"attn_q_norm", "self_attn.q_norm"},
    GgufModuleName{"attn_k_norm", "self_attn.k_norm"},
    GgufModuleName{"attn_output", "self_attn.o_proj"},
    GgufModuleName{"ffn_gate", "mlp.gate_proj"},
    GgufModuleName{"ffn_up", "mlp.up_proj"},
    GgufModuleName{"ffn_down", "mlp.down_proj"},
    GgufModuleName{"ffn_norm", "post_attention_layernorm"},
};
constexpr std::array kGemmaNorms = {
    GgufModuleName{"post_attention_norm", "post_attention_layernorm"},
    GgufModuleName{"ffn_norm", "pre_feedforward_layernorm"},
    GgufModuleName{"post_ffw_norm", "post_feedforward_layernorm"},
};

std::string find_module(const GgufArchitecture& architecture, std::string_view stored) {
  if (architecture.is_fused && stored == "ffn_up") return "mlp.gate_up_proj";
  if (architecture.is_gemma)
    for (const auto& part : kGemmaNorms)
      if (stored == part.stored) return part.name;
  for (const auto& part : kModules)
    if (stored == part.stored) return part.name;
  return "";
}

// Returns the Hugging Face name of a GGUF tensor, or "" if the checkpoint has no such tensor.
std::string checkpoint_name(const GgufArchitecture& architecture, const std::string& stored) {
  if (stored == "token_embd.weight") return "model.embed_tokens.weight";
  if (stored == "output_norm.weight") return "model.norm.weight";
  if (stored == "output.weight") return "lm_head.weight";
  const auto words = split(stored, '.');
  if (words.size() != 4 || words[0] != "blk" || (words[3] != "weight" && words[3] != "bias"))
    return "";
  const bool is_number =
      !words[1].empty() && words[1].find_first_not_of("0123456789") == std::string::npos;
  const auto part = is_number ? find_module(architecture, words[2]) : "";
  return part.empty() ? "" : fmt::format("model.layers.{}.{}.{}", words[1], part, words[3]);
}

}  // namespace

GgufModel read_gguf_model(const GgufHeader& header, std::span<const std::byte> file,
                          const std::string& where) {
  const GgufMetadata metadata(header, where);
  const auto& architecture = find_architecture(metadata);
  GgufModel model;
  model.config = GgufConfigConverter(architecture, header, file, metadata).write();
  for (const auto& [stored, tensor] : header.tensors) {
    if (stored == kFrequencyFactors || stored == kShortFactors || stored == kLongFactors) continue;
    const auto name = checkpoint_name(architecture, stored);
    if (name.empty())
      bad_input("{}: tensor {} is none that a {} model has, so its results would be wrong", where,
                quote_text(stored), architecture.name);
    GgufTensorSource source{.tensor = &tensor};
    if (architecture.interleaves_heads && stored.find(".attn_q.") != std::string::npos)
      source.interleaved_heads = model.config["num_attention_heads"].get<std::int64_t>();
    if (architecture.interleaves_heads && stored.find(".attn_k.") != std::string::npos)
      source.interleaved_heads = model.config["num_key_value_heads"].get<std::int64_t>();
    source.stored_plus_one = architecture.is_gemma && stored.ends_with("norm.weight");
    model.tensors.emplace(name, source);
  }
  return model;
}

}  // namespace qkscope
