#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "input/checkpoint/gguf.h"
#include "input/checkpoint/gguf_architectures.h"

namespace qkscope {
namespace {

constexpr const char* kFrequencyFactors = "rope_freqs.weight";
constexpr const char* kShortFactors = "rope_factors_short.weight";
constexpr const char* kLongFactors = "rope_factors_long.weight";

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
  bad_input("{}: the architecture {} is not supported in GGUF files; supported are {}",
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
    write_sizes();
    write_settings();
    if (!architecture_flag("layer_norm"))
      config_["rms_norm_eps"] = number("attention.layer_norm_rms_epsilon");
    config_["tie_word_embeddings"] = !header_.tensors.contains("output.weight");
    write_biases();
    if (architecture_flag("mamba2")) write_mamba2();
    write_sliding_window();
    write_rope();
    // GGUF does not store query_pre_attn_scalar. It equals d_head except in the largest models of
    // Gemma 2 (46 layers) and Gemma 3 (62 layers).
    const bool is_largest = n_layers_ == 46 || n_layers_ == 62;
    if (architecture_flag("latent") || architecture_flag("sigmoid_router")) write_router();
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
  double number(const std::string& name) {
    return shortest_decimal(metadata_.number(full_key(name)));
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
      bad_input("{}: a mixture of experts, which is not supported in GGUF files",
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
    config_[setting] = whole ? Json(natural_number(name)) : Json(number(name));
  }

  // Rejects architecture keys that were not read, because they could change the computation.
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

  void write_biases() {
    for (const auto& [setting, module] :
         {std::pair{"attention_bias", "attn_q"}, std::pair{"attention_out_bias", "attn_output"},
          std::pair{"mlp_bias", "ffn_up"}, std::pair{"use_bias", "attn_q"}})
      config_[setting] = header_.tensors.contains(fmt::format("blk.0.{}.bias", module));
  }

  // Writes the sizes of Mamba 2 under the names of every family.
  void write_mamba2() {
    const auto width = natural_number("ssm.inner_size"),
               heads = natural_number("ssm.time_step_rank");
    if (heads == 0 || d_model_ == 0 || width % heads != 0)
      metadata_.fail(full_key("ssm.inner_size"), "a multiple of the heads, ssm.time_step_rank");
    config_["mamba_d_ssm"] = width;
    config_["mamba_expand"] = width / d_model_;
    config_["mamba_n_heads"] = config_["mamba_num_heads"] = heads;
    config_["mamba_d_head"] = config_["mamba_head_dim"] = width / heads;
    config_["mamba_n_groups"] = natural_number("ssm.group_count");
    config_["mamba_d_state"] = config_["ssm_state_size"] = natural_number("ssm.state_size");
    config_["mamba_d_conv"] = natural_number("ssm.conv_kernel");
    config_["mamba_rms_norm"] = header_.tensors.contains("blk.0.ssm_norm.weight");
  }

  // Dtype of the weights in memory; quantized blocks become float32.
  std::string_view weight_dtype() const {
    auto found = header_.tensors.find("blk.0.ffn_down.weight");
    for (const auto* other : {"blk.0.ffn_down_exps.weight", "blk.0.ssm_out.weight"})
      if (found == header_.tensors.end()) found = header_.tensors.find(other);
    const bool plain = found != header_.tensors.end() && found->second.type->plain;
    return dtype_name(plain ? *found->second.type->plain : DType::f32);
  }

  // Accepts a single number, or a list with the same number for every layer with attention.
  std::int64_t uniform_number(const char* name) {
    const auto& value = metadata_.at(full_key(name));
    if (!value.is_array()) return natural_number(name);
    auto counts = value.get<std::vector<Json>>();
    if (architecture_.contains("mixer")) std::erase(counts, 0);
    const bool same = !counts.empty() && counts.front().is_number_integer() &&
                      counts.front() >= 0 &&
                      std::ranges::count(counts, counts.front()) == std::ssize(counts);
    if (!same) metadata_.fail(full_key(name), "one number for all layers");
    return counts.front().get<std::int64_t>();
  }

  void write_sizes() {
    d_model_ = natural_number("embedding_length");
    n_heads_ = uniform_number("attention.head_count");
    n_layers_ = natural_number("block_count");
    if (architecture_flag("predicts_tokens"))
      n_layers_ -= natural_number("nextn_predict_layers", 0);
    if (n_heads_ == 0) metadata_.fail(full_key("attention.head_count"), "one or more");
    d_head_ = natural_number("attention.key_length", d_model_ / n_heads_);
    if (architecture_flag("latent"))
      write_latent_sizes();
    else if (natural_number("attention.value_length", d_head_) != d_head_)
      metadata_.fail(full_key("attention.value_length"),
                     fmt::format("{}, the length of keys", d_head_));
    config_["hidden_size"] = d_model_;
    config_["num_hidden_layers"] = n_layers_;
    config_["num_attention_heads"] = n_heads_;
    const bool grouped = has_key("attention.head_count_kv") && !architecture_flag("latent");
    config_["num_key_value_heads"] = grouped ? uniform_number("attention.head_count_kv") : n_heads_;
    if (architecture_.contains("mixer")) write_layer_types();
    config_["head_dim"] = d_head_;
    config_["intermediate_size"] = uniform_number("feed_forward_length");
    config_["max_position_embeddings"] = natural_number("context_length");
    const auto embedding = header_.tensors.find("token_embd.weight");
    if (embedding == header_.tensors.end() || embedding->second.shape.size() != 2)
      bad_input("{}: expected a tensor 'token_embd.weight' of two dimensions",
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

  // Newer files store lengths of latent vectors as key_length, those of keys as key_length_mla.
  void write_latent_sizes() {
    const auto key_length = natural_number("attention.key_length_mla", d_head_);
    d_head_ = natural_number("rope.dimension_count");
    config_["qk_rope_head_dim"] = d_head_;
    config_["qk_nope_head_dim"] = key_length - d_head_;
    config_["v_head_dim"] =
        natural_number("attention.value_length_mla", natural_number("attention.value_length"));
  }

  // DeepSeek-V2 has softmax scores, the default of llama.cpp; DeepSeek-V3 has sigmoid scores.
  void write_router() {
    const bool always = config_.value("norm_topk_prob", false),
               latent = architecture_flag("latent");
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

  void write_sliding_window() {
    const auto window = natural_number("attention.sliding_window", 0);
    const bool has_pattern = has_key("attention.sliding_window_pattern");
    if (window == 0) return;
    if (!architecture_flag("slides"))
      metadata_.fail(full_key("attention.sliding_window"),
                     "none, as models of this architecture have");
    config_["sliding_window"] = window;
    if (has_pattern) write_pattern();
    if (config_["model_type"] == "olmo2") config_["model_type"] = "olmo3";
  }

  // sliding_window_pattern is a period (every n-th layer has full attention) or a list of booleans.
  void write_pattern() {
    const auto name = full_key("attention.sliding_window_pattern");
    const Json& pattern = metadata_.at(name);
    if (!pattern.is_array()) config_["sliding_window_pattern"] = metadata_.natural_number(name);
    if (!pattern.is_array()) return;
    for (const Json& slides : pattern) {
      if (!slides.is_boolean()) metadata_.fail(name, "a number, or true or false for each layer");
      config_["layer_types"].push_back(slides.get<bool>() ? "sliding_attention" : "full_attention");
    }
  }

  void write_rope() {
    const bool may_lack_rope = architecture_flag("may_lack_rope");
    if (may_lack_rope && metadata_.flag(full_key("rope.scaling.finetuned"), true))
      config_["position_embedding_type"] = "rope";
    if (!may_lack_rope || has_key("rope.freq_base"))
      config_["rope_theta"] = number("rope.freq_base");
    const auto rotated = natural_number("rope.dimension_count", d_head_);
    if (rotated != d_head_ && !architecture_flag("partial_rope"))
      metadata_.fail(full_key("rope.dimension_count"),
                     fmt::format("{}, the length of keys", d_head_));
    if (architecture_flag("partial_rope"))
      config_["partial_rotary_factor"] =
          static_cast<double>(rotated) / static_cast<double>(d_head_);
    if (!config_.contains("rope_local_base_freq") && has_key("rope.freq_base_swa") &&
        number("rope.freq_base_swa") != config_["rope_theta"])
      metadata_.fail(full_key("rope.freq_base_swa"), "the value of rope.freq_base");
    const auto type = metadata_.text(full_key("rope.scaling.type"),
                                     has_key("rope.scaling.factor") ? "linear" : "none");
    if (header_.tensors.contains(kFrequencyFactors))
      write_factors(type, kFrequencyFactors, kFrequencyFactors);
    else if (header_.tensors.contains(kShortFactors) && header_.tensors.contains(kLongFactors))
      write_factors(type, kShortFactors, kLongFactors);
    else
      write_scaling(type);
  }

  // GGUF stores one divisor per RoPE frequency for longrope and for llama3 models. The config.json
  // returned here uses longrope for both.
  void write_factors(const std::string& type, const char* short_name, const char* long_name) {
    if (type != "none" && has_key("rope.scaling.factor") && number("rope.scaling.factor") != 1.0)
      metadata_.fail(full_key("rope.scaling.factor"), "1 beside factors of frequencies");
    const auto positions = config_["max_position_embeddings"].get<std::int64_t>();
    Json& scaling = config_["rope_scaling"];
    scaling["rope_type"] = "longrope";
    scaling["short_factor"] = read_factors(short_name);
    scaling["long_factor"] = read_factors(long_name);
    scaling["factor"] = 1.0;
    scaling["attention_factor"] =
        has_key("rope.scaling.attn_factor") ? number("rope.scaling.attn_factor") : 1.0;
    // longrope switches factors at this position, without effect if both factor lists are equal.
    scaling["original_max_position_embeddings"] =
        natural_number("rope.scaling.original_context_length", positions);
  }

  Json read_factors(const char* name) const {
    constexpr std::int64_t kMost = 1 << 16;
    const auto& tensor = header_.tensors.at(name);
    if (tensor.element_count() > kMost)
      bad_input("{}: tensor {} has {} elements, expected a factor for each frequency",
                metadata_.source_path(), quote_text(name), tensor.element_count());
    return tensor.dequantize(file_);
  }

  void write_scaling(const std::string& type) {
    if (type == "none") return;
    if (type != "linear" && type != "yarn")
      metadata_.fail(full_key("rope.scaling.type"),
                     "none, linear or yarn, where the file has no factors of frequencies");
    Json& scaling = config_["rope_scaling"];
    scaling["rope_type"] = type;
    scaling["factor"] = number("rope.scaling.factor");
    if (type == "linear") return;
    if (has_key("rope.scaling.original_context_length"))
      scaling["original_max_position_embeddings"] =
          natural_number("rope.scaling.original_context_length");
    for (const auto& [name, setting] :
         {std::pair{"rope.scaling.yarn_beta_fast", "beta_fast"},
          std::pair{"rope.scaling.yarn_beta_slow", "beta_slow"},
          std::pair{"rope.scaling.yarn_attn_factor", "attention_factor"}})
      if (has_key(name)) scaling[setting] = number(name);
    const auto* log_multiplier = "rope.scaling.yarn_log_multiplier";
    if (architecture_flag("latent") &&
        has_key(log_multiplier))  // llama.cpp takes mscale for equal to mscale_all_dim
      scaling["mscale"] = scaling["mscale_all_dim"] =
          shortest_decimal(static_cast<float>(number(log_multiplier) / 0.1));
    for (const auto* name : {"rope.scaling.attn_factor", log_multiplier})
      if (has_key(name) && number(name) != 1.0 &&
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

// Adds attn_v_b (head, d_value, rank) to attn_k_b (head, rank, d_key): the halves of kv_b_proj.
bool add_value_rows(GgufTensorSource& source, const GgufTensor& tensor) {
  const auto keys = source.shape, values = tensor.shape;
  if (keys.size() != 3 || values.size() != 3 || keys[0] != values[0] || keys[1] != values[2])
    return false;
  source.values = &tensor;
  source.shape = {keys[0] * (keys[2] + values[1]), keys[1]};
  return true;
}

// Returns the Hugging Face name of a GGUF tensor, or "" if the checkpoint has no such tensor.
std::string checkpoint_name(const Json& architecture, const std::string& stored) {
  static const Json kModules = Json::parse(kGgufModules);
  if (stored == "token_embd.weight")
    return "model." + architecture.value("embedding", "embed_tokens") + ".weight";
  if (stored == "output.weight") return "lm_head.weight";
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

// Restores dimensions that the converter removed or added: a convolution is (channels, 1, taps),
// A_log and D are (heads), and the norm of all groups is a vector.
void restore_shape(std::vector<std::int64_t>& shape, const std::string& name, const Json& groups) {
  if (shape.size() != 2) return;
  if (name.ends_with("conv.weight") || name.ends_with("conv1d.weight"))
    shape.insert(shape.begin() + 1, 1);
  if ((name.ends_with(".ssm_a") || name.ends_with(".ssm_d")) && shape[1] == 1) shape.pop_back();
  if (name.ends_with(".ssm_norm.weight") && groups == shape[0]) shape = {shape[0] * shape[1]};
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
    restore_shape(source.shape, stored, model.config.value("mamba_n_groups", Json()));
    source.stored_negative_exp = stored.ends_with(".ssm_a");
    for (const auto& [part, heads] : {std::pair{".attn_q.", "num_attention_heads"},
                                      std::pair{".attn_k.", "num_key_value_heads"}})
      if (architecture.value("interleaves_heads", false) && stored.find(part) != std::string::npos)
        source.interleaved_heads = model.config[heads].get<std::int64_t>();
    source.stored_plus_one =
        architecture.value("is_gemma", false) && stored.ends_with("norm.weight");
    const auto name = checkpoint_name(architecture, stored);
    const auto [entry, is_new] = model.tensors.emplace(name, source);
    if (name.empty() || (!is_new && !add_value_rows(entry->second, tensor)))
      bad_input("{}: tensor {} is none that a {} model has, so its results would be wrong", where,
                quote_text(stored), std::string(architecture["name"]));
  }
  return model;
}

}  // namespace qkscope
