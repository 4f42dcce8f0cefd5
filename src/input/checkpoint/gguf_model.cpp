#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/numbers.h"
#include "base/core/text.h"
#include "input/checkpoint/gguf.h"
#include "input/checkpoint/gguf_architectures.h"

namespace qkscope {
namespace {

constexpr const char* kFrequencyFactors = "rope_freqs.weight";
constexpr const char* kShortFactors = "rope_factors_short.weight";
constexpr const char* kLongFactors = "rope_factors_long.weight";
constexpr std::int64_t kLargestSize = 1 << 20;  // of key heads, keys and kernels of delta nets

const Json& find_architecture(const GgufMetadata& metadata) {
  static const Json kArchitectures = [] {
    auto rows = Json::parse(kGgufArchitectures);
    for (Json& row : rows)
      for (Json base : rows)
        if (base["name"] == row.value("like", "")) base.merge_patch(row), row = base;
    return rows;
  }();
  const auto name = metadata.text("general.architecture");
  std::vector<std::string> names;
  for (const Json& architecture : kArchitectures) {
    if (architecture["name"] == name) return architecture;
    names.push_back(architecture["name"]);
  }
  reject("{}: the architecture {} is not supported in GGUF files; supported are {}",
         metadata.source_path(), quote_text(name), fmt::join(names, ", "));
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
  GgufConfigConverter(const Json& architecture, const GgufHeader& header,
                      std::span<const std::byte> file, const GgufMetadata& metadata)
      : architecture_(architecture), header_(header), file_(file), metadata_(metadata) {}

  Json convert_to_config() {
    config_ = architecture_.value("constants", Json::object());
    config_["model_type"] = architecture_["model_type"];
    config_["dtype"] = weight_dtype();
    write_model_sizes();
    write_settings();
    if (!architecture_flag("layer_norm"))
      config_["rms_norm_eps"] = real_number("attention.layer_norm_rms_epsilon");
    config_["tie_word_embeddings"] = !header_.tensors.contains("output.weight");
    write_bias_flags();
    if (architecture_flag("mamba2")) write_mamba2_settings();
    if (architecture_flag("delta_net")) write_delta_net_settings();
    write_sliding_window();
    if (architecture_flag("gemma4")) write_gemma4_layers();
    write_rope_settings();
    // GGUF does not store query_pre_attn_scalar. It equals d_head except in the largest models of
    // Gemma 2 (46 layers) and Gemma 3 (62 layers).
    const bool is_largest = n_layers_ == 46 || n_layers_ == 62;
    if (architecture_flag("latent") || architecture_flag("sigmoid_router")) write_router_settings();
    if (architecture_flag("is_gemma"))
      config_["query_pre_attn_scalar"] = is_largest ? d_model_ / n_heads_ : d_head_;
    refuse_unknown_keys();
    return std::move(config_);
  }

 private:
  bool architecture_flag(const char* field) const { return architecture_.value(field, false); }
  std::string full_key(const std::string& name) {
    return *read_.insert(fmt::format("{}.{}", std::string(architecture_["name"]), name)).first;
  }
  bool has_key(const std::string& name) { return metadata_.has(full_key(name)); }
  double real_number(const std::string& name) {
    return shortest_decimal(metadata_.real_number(full_key(name)));
  }
  std::int64_t natural_number(const std::string& name, std::optional<std::int64_t> fallback = {}) {
    return metadata_.natural_number(full_key(name), fallback);
  }

  void write_settings() {
    const auto settings = architecture_.value("settings", Json::object());
    for (const auto& [name, setting] : settings.items()) write_setting(name, setting);
    const auto optional = architecture_.value("optional", Json::object());
    for (const auto& [name, setting] : optional.items())
      if (has_key(name)) write_setting(name, setting);
    const auto experts = natural_number("expert_count", 0);
    if (experts > 0 && !architecture_flag("experts"))
      reject("{}: a mixture of experts, which is not supported in GGUF files",
             metadata_.source_path());
    if (!architecture_flag("experts")) return;
    config_["num_experts"] = config_["num_local_experts"] = experts;
    config_["use_qk_norm"] = config_["model_type"] == "llama4_text"
                                 ? experts != 128
                                 : header_.tensors.contains("blk.0.attn_q_norm.weight");
    if (experts == 0 && architecture_.contains("mixer")) return;
    write_setting("expert_used_count", "num_experts_per_tok");
    if (has_key("expert_feed_forward_length"))
      write_setting("expert_feed_forward_length", "moe_intermediate_size");
  }

  void write_setting(const std::string& name, const std::string& setting) {
    const bool whole = metadata_.at(full_key(name)).is_number_integer();
    config_[setting] = whole ? Json(natural_number(name)) : Json(real_number(name));
  }

  // Rejects metadata keys of the architecture that were not read: they may change the computation.
  void refuse_unknown_keys() {
    static const Json kNeutral = Json::parse(kGgufNeutralKeys);
    const auto prefix = full_key("");
    for (const auto& [name, value] : header_.metadata) {
      if (!name.starts_with(prefix) || read_.contains(name)) continue;
      const auto known = kNeutral.find(name.substr(prefix.size()));
      if (known == kNeutral.end() || (!known->is_null() && *known != value))
        metadata_.fail(name, "none, as models of this architecture have");
    }
  }

  void write_bias_flags() {
    for (const auto& [setting, module] :
         {std::pair{"attention_bias", "attn_q"}, std::pair{"attention_out_bias", "attn_output"},
          std::pair{"mlp_bias", "ffn_up"}, std::pair{"use_bias", "attn_q"}})
      config_[setting] = header_.tensors.contains(fmt::format("blk.0.{}.bias", module));
  }

  // Returns the width and the number of heads of an SSM or delta net mixer.
  std::pair<std::int64_t, std::int64_t> read_mixer_size() {
    const auto width = natural_number("ssm.inner_size"),
               heads = natural_number("ssm.time_step_rank");
    if (heads == 0 || d_model_ == 0 || width % heads != 0)
      metadata_.fail(full_key("ssm.inner_size"), "a multiple of the heads, ssm.time_step_rank");
    return {width, heads};
  }

  // Writes the Mamba 2 sizes under the config.json keys of all model families with Mamba 2 layers.
  void write_mamba2_settings() {
    const auto [width, heads] = read_mixer_size();
    config_["mamba_d_ssm"] = width;
    config_["mamba_expand"] = width / d_model_;
    config_["mamba_n_heads"] = config_["mamba_num_heads"] = heads;
    config_["mamba_d_head"] = config_["mamba_head_dim"] = width / heads;
    config_["mamba_n_groups"] = natural_number("ssm.group_count");
    config_["mamba_d_state"] = config_["ssm_state_size"] = natural_number("ssm.state_size");
    config_["mamba_d_conv"] = natural_number("ssm.conv_kernel");
    config_["mamba_rms_norm"] = header_.tensors.contains("blk.0.ssm_norm.weight");
  }

  void write_delta_net_settings() {
    const auto [width, heads] = read_mixer_size();
    config_["linear_value_head_dim"] = width / heads;
    config_["linear_num_value_heads"] = heads;
    for (const auto& [name, setting] : {std::pair{"ssm.group_count", "linear_num_key_heads"},
                                        std::pair{"ssm.state_size", "linear_key_head_dim"},
                                        std::pair{"ssm.conv_kernel", "linear_conv_kernel_dim"}}) {
      config_[setting] = natural_number(name);
      if (config_[setting] == 0 || config_[setting] > kLargestSize)
        metadata_.fail(full_key(name), fmt::format("1 to {}", kLargestSize));
    }
    if (heads % config_["linear_num_key_heads"].get<std::int64_t>() != 0)
      metadata_.fail(full_key("ssm.time_step_rank"),
                     "a multiple of the key heads, ssm.group_count");
    if (has_key("attention.recurrent_layers"))
      write_flagged_layer_types("attention.recurrent_layers", "linear_attention");
  }

  // Dtype of the GGUF weights in memory; quantized blocks become float32.
  std::string_view weight_dtype() const {
    auto found = header_.tensors.find("blk.0.ffn_down.weight");
    for (const auto* other : {"blk.0.ffn_down_exps.weight", "blk.0.ssm_out.weight"})
      if (found == header_.tensors.end()) found = header_.tensors.find(other);
    const bool plain = found != header_.tensors.end() && found->second.type->plain;
    return dtype_name(plain ? *found->second.type->plain : DType::f32);
  }

  // Reads one number for all layers, or a list that has the same number for every attention layer.
  std::int64_t read_uniform_layer_number(const char* name) {
    const auto& value = metadata_.at(full_key(name));
    if (!value.is_array()) return natural_number(name);
    auto counts = value.get<std::vector<Json>>();
    if (architecture_.contains("mixer")) std::erase(counts, 0);
    const bool same = !counts.empty() && counts.front().is_number_integer() &&
                      counts.front() >= 0 &&
                      (std::ranges::count(counts, counts.front()) == std::ssize(counts) ||
                       architecture_flag("gemma4"));
    if (!same) metadata_.fail(full_key(name), "one number for all layers");
    return counts.front().get<std::int64_t>();
  }

  void write_model_sizes() {
    d_model_ = natural_number("embedding_length");
    n_heads_ = read_uniform_layer_number("attention.head_count");
    n_layers_ = natural_number("block_count");
    if (architecture_flag("predicts_tokens"))
      n_layers_ -= natural_number("nextn_predict_layers", 0);
    if (n_heads_ == 0) metadata_.fail(full_key("attention.head_count"), "one or more");
    d_head_ = natural_number("attention.key_length", d_model_ / n_heads_);
    if (architecture_flag("latent"))
      write_mla_sizes();
    else if (natural_number("attention.value_length", d_head_) != d_head_)
      metadata_.fail(full_key("attention.value_length"),
                     fmt::format("{}, the length of keys", d_head_));
    config_["hidden_size"] = d_model_;
    config_["num_hidden_layers"] = n_layers_;
    config_["num_attention_heads"] = n_heads_;
    const bool grouped = has_key("attention.head_count_kv") && !architecture_flag("latent");
    config_["num_key_value_heads"] =
        grouped ? read_uniform_layer_number("attention.head_count_kv") : n_heads_;
    if (architecture_.contains("mixer")) write_layer_types();
    config_["head_dim"] = d_head_;
    config_["intermediate_size"] = read_uniform_layer_number("feed_forward_length");
    config_["max_position_embeddings"] = natural_number("context_length");
    const auto embedding = header_.tensors.find("token_embd.weight");
    if (embedding == header_.tensors.end() || embedding->second.shape.size() != 2)
      reject("{}: expected a tensor 'token_embd.weight' of two dimensions",
             metadata_.source_path());
    config_["vocab_size"] = embedding->second.shape.front();
  }

  void write_layer_types() {
    const bool has_mlp_layers = architecture_.contains("layer_module");
    const Json& key_heads = metadata_.at(full_key("attention.head_count_kv"));
    const Json& widths = metadata_.at(full_key("feed_forward_length"));
    if (has_mlp_layers && (!widths.is_array() || widths.size() != key_heads.size()))
      metadata_.fail(full_key("feed_forward_length"), "the width of each layer");
    Json& types = config_["layer_types"];
    const auto* const mlp = natural_number("expert_count", 0) > 0 ? "moe" : "mlp";
    for (const Json& count : key_heads) {
      if (has_mlp_layers && std::ssize(types) == n_layers_) break;  // predicts further tokens
      const bool is_mlp = has_mlp_layers && widths[types.size()] != 0;
      types.push_back(is_mlp ? mlp : count == 0 ? architecture_["mixer"] : "full_attention");
    }
  }

  // Newer GGUF files store the latent size in key_length, and the key size in key_length_mla.
  void write_mla_sizes() {
    const auto key_length = natural_number("attention.key_length_mla", d_head_);
    d_head_ = natural_number("rope.dimension_count");
    config_["qk_rope_head_dim"] = d_head_;
    config_["qk_nope_head_dim"] = key_length - d_head_;
    config_["v_head_dim"] =
        natural_number("attention.value_length_mla", natural_number("attention.value_length", 0));
  }

  // Router scores are a softmax (llama.cpp's default) in DeepSeek-V2 and a sigmoid in DeepSeek-V3.
  void write_router_settings() {
    const bool always = config_.value("norm_topk_prob", false),
               latent = config_["model_type"] == "deepseek_v2";
    config_["norm_topk_prob"] = metadata_.flag(full_key("expert_weights_norm"), always);
    if (always && !config_["norm_topk_prob"])
      metadata_.fail(full_key("expert_weights_norm"), "true, as models of this architecture have");
    const auto function = natural_number("expert_gating_func", latent ? 1 : 2);
    if (function != 2 && (!latent || function != 1))
      metadata_.fail(full_key("expert_gating_func"),
                     latent ? "1 (softmax) or 2 (sigmoid)" : "2 (sigmoid)");
    if (!latent) return;
    config_["topk_method"] = config_["n_group"] == 1 ? "greedy" : "group_limited_greedy";
    if (function == 2) config_["model_type"] = "deepseek_v3", config_["topk_method"] = "noaux_tc";
  }

  // sliding_window_pattern is a period n (every n-th layer has full attention) or a boolean list.
  void write_sliding_window() {
    const auto window = natural_number("attention.sliding_window", 0);
    const auto* const pattern = "attention.sliding_window_pattern";
    const bool has_pattern = has_key(pattern);
    if (window == 0) return;
    if (!architecture_flag("slides"))
      metadata_.fail(full_key("attention.sliding_window"),
                     "none, as models of this architecture have");
    config_["sliding_window"] = window;
    if (has_pattern && metadata_.at(full_key(pattern)).is_array())
      write_flagged_layer_types(pattern, "sliding_attention");
    else if (has_pattern)
      config_["sliding_window_pattern"] = natural_number(pattern);
    if (config_["model_type"] == "olmo2") config_["model_type"] = "olmo3";
  }

  // Reads a list of booleans, one per layer: true stands for `type`, false for full attention.
  void write_flagged_layer_types(const char* key, const char* type) {
    for (const Json& marked : metadata_.array(full_key(key))) {
      if (!marked.is_boolean()) metadata_.fail(full_key(key), "true or false for each layer");
      config_["layer_types"].push_back(marked.get<bool>() ? type : "full_attention");
    }
  }

  // Returns one number per layer. The metadata value is a list, or one number for all layers.
  std::vector<std::int64_t> numbers_per_layer(const char* key) {
    const Json& value = metadata_.at(full_key(key));
    if (!value.is_array()) return std::vector(as_index(n_layers_), natural_number(key));
    if (std::ssize(value) != n_layers_ ||
        !std::all_of(value.begin(), value.end(), [](auto& n) { return n.is_number_integer(); }))
      metadata_.fail(full_key(key), fmt::format("a whole number for each of {} layers", n_layers_));
    return value.get<std::vector<std::int64_t>>();
  }

  // Gemma 4: layers with full attention have wider heads than those with a sliding window. The last
  // layers may share keys with earlier ones and have MLPs of double width.
  void write_gemma4_layers() {
    const auto types = config_.value("layer_types", Json::array());
    if (natural_number("attention.sliding_window") == 0)
      metadata_.fail(full_key("attention.sliding_window"), "one or more");
    if (types.empty() || std::ssize(types) != n_layers_ || types.back() != "full_attention")
      metadata_.fail(full_key("attention.sliding_window_pattern"),
                     fmt::format("a list of {} booleans, false for the last layer", n_layers_));
    const auto d_sliding = natural_number("attention.key_length_swa");
    for (const auto* key : {"attention.value_length_swa", "rope.dimension_count_swa"})
      if (natural_number(key, d_sliding) != d_sliding)
        metadata_.fail(full_key(key), fmt::format("{}, the length of keys", d_sliding));
    const auto shared = natural_number("attention.shared_kv_layers", 0);
    const auto widths = numbers_per_layer("feed_forward_length"),
               key_heads = numbers_per_layer("attention.head_count_kv");
    config_["head_dim"] = d_sliding;
    config_["num_kv_shared_layers"] = shared;
    config_["use_double_wide_mlp"] = widths.back() != widths.front();
    for (std::int64_t i = 0; i < n_layers_; ++i) {
      const bool slides = types[as_index(i)] == "sliding_attention",
                 shares = i >= n_layers_ - shared;
      config_["per_layer_config"][std::to_string(i)] = {
          {"head_dim", slides ? d_sliding : d_head_},
          {"num_key_value_heads", key_heads[as_index(i)]}};
      const auto width = widths[as_index(i)];
      const bool wide = shares && config_["use_double_wide_mlp"];
      if (width / (wide ? 2 : 1) != widths.front() || (wide && width % 2 != 0))
        metadata_.fail(full_key("feed_forward_length"),
                       fmt::format("one width, or twice it in the last {} layers", shared));
      if (!slides && !shares && !header_.tensors.contains(fmt::format("blk.{}.attn_v.weight", i)))
        config_["attention_k_eq_v"] = true;
    }
    const auto embedding = header_.tensors.find("per_layer_token_embd.weight");
    if (embedding != header_.tensors.end())
      config_["vocab_size_per_layer_input"] = embedding->second.shape.front();
  }

  // RoPE of Gemma 4 layers with full attention: the tensor rope_freqs divides frequencies by 1 for
  // the rotated dimensions and by 1e30, which stops the rotation, for the others.
  void write_gemma4_rope() {
    const auto factors = header_.tensors.contains(kFrequencyFactors)
                             ? read_rope_factors(kFrequencyFactors).get<std::vector<float>>()
                             : std::vector<float>();
    const auto rotated = std::ranges::find_if_not(factors, [](float f) { return f == 1.0f; });
    if (2 * std::ssize(factors) != d_head_ ||
        !std::all_of(rotated, factors.end(), [](float f) { return f >= 1e30f; }))
      reject("{}: expected a tensor 'rope_freqs.weight' of {} factors, first 1, then 1e30",
             metadata_.source_path(), d_head_ / 2);
    const auto pairs = static_cast<double>(rotated - factors.begin());
    const auto width = static_cast<double>(d_head_);
    double part = 2.0 * pairs / width;
    if (part * width / 2.0 < pairs) part = std::nextafter(part, 1.0);  // the engine rounds down
    config_["rope_parameters"] = {
        {"full_attention",
         {{"rope_type", "proportional"},
          {"rope_theta", config_["rope_theta"]},
          {"partial_rotary_factor", part}}},
        {"sliding_attention",
         {{"rope_type", "default"}, {"rope_theta", real_number("rope.freq_base_swa")}}}};
  }

  void write_rope_settings() {
    const bool may_lack_rope = architecture_flag("may_lack_rope");
    if (may_lack_rope && metadata_.flag(full_key("rope.scaling.finetuned"), true))
      config_["position_embedding_type"] = "rope";
    if (!may_lack_rope || has_key("rope.freq_base"))
      config_["rope_theta"] = real_number("rope.freq_base");
    const auto rotated = natural_number("rope.dimension_count", d_head_);
    if (rotated != d_head_ && !architecture_flag("partial_rope"))
      metadata_.fail(full_key("rope.dimension_count"),
                     fmt::format("{}, the length of keys", d_head_));
    if (architecture_flag("partial_rope"))
      config_["partial_rotary_factor"] =
          static_cast<double>(rotated) / static_cast<double>(d_head_);
    if (architecture_flag("gemma4")) return write_gemma4_rope();
    if (!config_.contains("rope_local_base_freq") && has_key("rope.freq_base_swa") &&
        real_number("rope.freq_base_swa") != config_["rope_theta"])
      metadata_.fail(full_key("rope.freq_base_swa"), "the value of rope.freq_base");
    const auto type = metadata_.text(full_key("rope.scaling.type"),
                                     has_key("rope.scaling.factor") ? "linear" : "none");
    if (header_.tensors.contains(kFrequencyFactors))
      write_rope_factors(type, kFrequencyFactors, kFrequencyFactors);
    else if (header_.tensors.contains(kShortFactors) && header_.tensors.contains(kLongFactors))
      write_rope_factors(type, kShortFactors, kLongFactors);
    else
      write_rope_scaling(type);
  }

  // For the RoPE scalings longrope and llama3, GGUF stores one divisor per frequency. The resulting
  // config.json uses longrope for both.
  void write_rope_factors(const std::string& type, const char* short_name, const char* long_name) {
    if (type != "none" && has_key("rope.scaling.factor") &&
        real_number("rope.scaling.factor") != 1.0)
      metadata_.fail(full_key("rope.scaling.factor"), "1 beside factors of frequencies");
    const auto positions = config_["max_position_embeddings"].get<std::int64_t>();
    Json& scaling = config_["rope_scaling"];
    scaling["rope_type"] = "longrope";
    scaling["short_factor"] = read_rope_factors(short_name);
    scaling["long_factor"] = read_rope_factors(long_name);
    scaling["factor"] = 1.0;
    scaling["attention_factor"] =
        has_key("rope.scaling.attn_factor") ? real_number("rope.scaling.attn_factor") : 1.0;
    // Above this position longrope uses long_factor, which may be equal to short_factor.
    scaling["original_max_position_embeddings"] =
        natural_number("rope.scaling.original_context_length", positions);
  }

  Json read_rope_factors(const char* name) const {
    constexpr std::int64_t kMost = 1 << 16;
    const auto& tensor = header_.tensors.at(name);
    if (tensor.element_count() > kMost)
      reject("{}: tensor {} has {} elements, expected a factor for each frequency",
             metadata_.source_path(), quote_text(name), tensor.element_count());
    return tensor.dequantize(file_);
  }

  void write_rope_scaling(const std::string& type) {
    if (type == "none") return;
    if (type != "linear" && type != "yarn")
      metadata_.fail(full_key("rope.scaling.type"),
                     "none, linear or yarn, where the file has no factors of frequencies");
    Json& scaling = config_["rope_scaling"];
    scaling["rope_type"] = type;
    scaling["factor"] = real_number("rope.scaling.factor");
    if (type == "linear") return;
    if (has_key("rope.scaling.original_context_length"))
      scaling["original_max_position_embeddings"] =
          natural_number("rope.scaling.original_context_length");
    for (const auto& [name, setting] :
         {std::pair{"rope.scaling.yarn_beta_fast", "beta_fast"},
          std::pair{"rope.scaling.yarn_beta_slow", "beta_slow"},
          std::pair{"rope.scaling.yarn_attn_factor", "attention_factor"}})
      if (has_key(name)) scaling[setting] = real_number(name);
    const auto* log_multiplier = "rope.scaling.yarn_log_multiplier";
    if (architecture_flag("latent") &&
        has_key(log_multiplier))  // llama.cpp assumes that mscale and mscale_all_dim are equal
      scaling["mscale"] = scaling["mscale_all_dim"] =
          shortest_decimal(static_cast<float>(real_number(log_multiplier) / 0.1));
    for (const auto* name : {"rope.scaling.attn_factor", log_multiplier})
      if (has_key(name) && real_number(name) != 1.0 &&
          !(architecture_flag("latent") && name == log_multiplier))
        metadata_.fail(full_key(name), "1, as models of this architecture have");
  }

  const Json& architecture_;
  const GgufHeader& header_;
  std::span<const std::byte> file_;
  const GgufMetadata& metadata_;
  Json config_;
  std::set<std::string> read_;  // metadata keys that were looked up
  std::int64_t d_model_ = 0, n_heads_ = 0, n_layers_ = 0, d_head_ = 0;
};

// Pairs the halves of kv_b_proj: attn_k_b (head, rank, d_key) and attn_v_b (head, d_value, rank).
bool pair_kv_b_proj_halves(GgufTensorSource& source, const GgufTensor& tensor) {
  const auto keys = source.shape, values = tensor.shape;
  if (keys.size() != 3 || values.size() != 3 || keys[0] != values[0] || keys[1] != values[2])
    return false;
  source.values = &tensor;
  source.shape = {keys[0] * (keys[2] + values[1]), keys[1]};
  return true;
}

// Returns the Hugging Face name of a GGUF tensor, or "" if the checkpoint has no such tensor.
std::string checkpoint_tensor_name(const Json& architecture, const std::string& stored) {
  static const Json kModules = Json::parse(kGgufModules);
  if (stored == "token_embd.weight")
    return "model." + architecture.value("embedding", "embed_tokens") + ".weight";
  if (stored == "output.weight") return "lm_head.weight";
  if (const auto others = architecture.value("tensors", Json::object()); others.contains(stored))
    return "model." + std::string(others[stored]);
  const auto words = split(stored, '.');
  const auto last = "." + words.back();
  const auto ending = last == ".weight" || last == ".bias" ? last : "";
  const auto final_norm = architecture.value("final_norm", Json{"output_norm", "norm"});
  if (words.size() == 2 && words[0] == std::string(final_norm[0]) && !ending.empty())
    return "model." + std::string(final_norm[1]) + ending;
  if (words.size() < 3 || words[0] != "blk" || words[1].empty() ||
      words[1].find_first_not_of("0123456789") != std::string::npos)
    return "";
  const auto layer = fmt::format("model.layers.{}.", words[1]);
  auto modules = kModules;
  modules.update(architecture.value("modules", Json::object()));
  const auto tensor = stored.substr(words[0].size() + words[1].size() + 2);
  const auto module = tensor.substr(0, tensor.size() - ending.size());
  const bool whole = modules.contains(tensor);
  if (!whole && (ending.empty() || !modules.contains(module))) return "";
  auto name = modules[whole ? tensor : module].get<std::string>();
  const auto dot = name.find('.');
  if (architecture.contains("layer_module") && dot != std::string::npos)
    name.replace(0, dot, std::string(architecture["layer_module"]));
  return layer + name + (whole ? "" : ending);
}

// Restores the shape of tensors whose dimensions the converter removed or added: (channels, 1,
// taps) for convolutions, (heads) for A_log and D, one vector for grouped norms, (1, 1, heads, 1)
// for A_log of Kimi Linear, (1, d_model) for the gate of a shared expert.
void restore_shape(GgufTensorSource& source, const Json& architecture, const Json& groups) {
  auto& shape = source.shape;
  const auto& name = source.tensor->name;
  if (name.ends_with(".ssm_a") && architecture.value("latent", false))
    shape = {1, 1, source.tensor->element_count(), 1};
  if (name.ends_with(".ffn_gate_inp_shexp.weight") && shape.size() == 1)
    shape.insert(shape.begin(), 1);
  if (shape.size() != 2) return;
  if (name.ends_with("conv.weight") || name.ends_with("conv1d.weight"))
    shape.insert(shape.begin() + 1, 1);
  if ((name.ends_with(".ssm_a") || name.ends_with(".ssm_d")) && shape[1] == 1) shape.pop_back();
  if (name.ends_with(".ssm_norm.weight") && groups == shape[0]) shape = {shape[0] * shape[1]};
}

// Returns how the converter permutes a tensor. llama.cpp rotates adjacent dimensions of a head,
// (0, 1), (2, 3), ..., where checkpoints rotate halves, (0, d/2), (1, d/2 + 1), ... It stores the
// first value head of every key head of a delta net before the second ones.
TensorPermutation find_tensor_permutation(const GgufTensor& tensor, const Json& architecture,
                                          const Json& config, const std::string& where) {
  if (tensor.shape.empty()) return {};
  const auto rows = tensor.shape.front();
  const auto number = [&](const char* key) { return config[key].get<std::int64_t>(); };
  if (architecture.value("interleaves_heads", false))
    for (const auto& [part, key] : {std::pair{".attn_q.", "num_attention_heads"},
                                    std::pair{".attn_k.", "num_key_value_heads"}}) {
      const auto heads = tensor.name.find(part) == std::string::npos ? 0 : number(key);
      if (heads == 0) continue;
      if (heads > rows || rows % (2 * heads) != 0)
        reject("{}: tensor {} has {} rows, which {} heads cannot share in pairs", where,
               quote_text(tensor.name), rows, heads);
      return {.outer = 2, .inner = rows / heads / 2};
    }
  if (!architecture.value("tiles_values", false)) return {};
  const auto keys = number("linear_num_key_heads"), values = number("linear_num_value_heads");
  const auto d_value = number("linear_value_head_dim");
  const auto after_keys = 2 * keys * number("linear_key_head_dim");
  if (values == keys) return {};
  struct Rule {
    const char* ending;
    std::int64_t unit = 1, first = 0;
    bool columns = false;
  };
  for (const auto& [ending, unit, first, columns] :
       {Rule{".attn_qkv.weight", d_value, after_keys},
        Rule{".ssm_conv1d.weight", d_value, after_keys}, Rule{".attn_gate.weight", d_value},
        Rule{".ssm_out.weight", d_value, 0, true}, Rule{".ssm_alpha.weight"},
        Rule{".ssm_beta.weight"}, Rule{".ssm_a"}, Rule{".ssm_dt.bias"}}) {
    if (!tensor.name.ends_with(ending)) continue;
    const auto size = columns ? tensor.shape.back() : rows;
    if (size - first != values * unit)
      reject("{}: tensor {} has {} {} of {} value heads, expected {}", where,
             quote_text(tensor.name), size - first, columns ? "columns" : "rows", values,
             values * unit);
    return {keys, values / keys, unit, first, columns};
  }
  return {};
}

}  // namespace

GgufModel read_gguf_model(const GgufHeader& header, std::span<const std::byte> file,
                          const std::string& where) {
  const GgufMetadata metadata(header, where);
  const auto& architecture = find_architecture(metadata);
  GgufModel model;
  model.config = GgufConfigConverter(architecture, header, file, metadata).convert_to_config();
  for (const auto& [stored, tensor] : header.tensors) {
    if (stored == kFrequencyFactors || stored == kShortFactors || stored == kLongFactors) continue;
    if (architecture.value("predicts_tokens", false) && stored.starts_with("blk.") &&
        std::strtoll(stored.c_str() + 4, nullptr, 10) >= model.config["num_hidden_layers"])
      continue;
    GgufTensorSource source{.tensor = &tensor, .shape = tensor.shape};
    restore_shape(source, architecture, model.config.value("mamba_n_groups", Json()));
    source.order = find_tensor_permutation(tensor, architecture, model.config, where);
    source.stored_negative_exp = stored.ends_with(".ssm_a");
    source.stored_plus_one = architecture.value("norms_add_one", false) &&
                             stored.ends_with("norm.weight") &&
                             !stored.ends_with(".ssm_norm.weight");
    const auto name = checkpoint_tensor_name(architecture, stored);
    const auto [entry, is_new] = model.tensors.emplace(name, source);
    if (name.empty() || (!is_new && !pair_kv_b_proj_halves(entry->second, tensor)))
      reject("{}: tensor {} is none that a {} model has, so its results would be wrong", where,
             quote_text(stored), std::string(architecture["name"]));
  }
  return model;
}

}  // namespace qkscope
