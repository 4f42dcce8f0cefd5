#include "engine/model/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <set>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/log.h"
#include "base/core/numbers.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "engine/model/loaded_checkpoint.h"
#include "input/checkpoint/checkpoint.h"
#include "input/checkpoint/gguf.h"

namespace qkscope {
namespace {

// Upper limit for sizes: products of two larger sizes could overflow, and CUDA kernels use int.
constexpr std::int64_t kMaxCount = INT32_MAX;

std::optional<std::int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (number == std::floor(number) && std::abs(number) < 0x1p53)
      return static_cast<std::int64_t>(number);
  }
  return std::nullopt;
}

std::optional<double> as_number(const Json& value) {
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

// Converts all elements of the list at `key`; fails if it is not a list or an element is invalid.
template <typename Convert>
auto read_config_list(const ConfigReader& config, const std::string& key,
                      const std::string& expected, Convert convert) {
  const Json& list = config.raw_value(key);
  if (!list.is_array()) config.fail(key, expected);
  std::vector<typename decltype(convert(list))::value_type> values;
  for (const auto& item : list) {
    const auto value = convert(item);
    if (!value) config.fail(key, expected);
    values.push_back(*value);
  }
  return values;
}

std::int64_t read_integer(const ConfigReader& config, const std::string& key, std::int64_t least) {
  const auto value = as_integer(config.raw_value(key));
  if (!value || *value < least || *value > kMaxCount)
    config.fail(key, fmt::format("an integer from {} to {}", least, kMaxCount));
  return *value;
}

// Multimodal checkpoints describe their language model in text_config.
struct MultimodalWrapper {
  std::string_view model_type;
  std::string_view text_model_type;  // model_type used if text_config has none
};
constexpr std::array kWrappers = {
    MultimodalWrapper{"mistral3", "mistral"},     MultimodalWrapper{"mllama", "mllama_text_model"},
    MultimodalWrapper{"gemma3", "gemma3_text"},   MultimodalWrapper{"llama4", "llama4_text"},
    MultimodalWrapper{"qwen3_5", "qwen3_5_text"}, MultimodalWrapper{"gemma4", "gemma4_text"},
};

const ModelFamilySpec& find_model_family(const std::string& model_type, const std::string& where) {
  std::vector<std::string> known;
  for (const auto& family : model_family_specs()) {
    if (family.model_type == model_type) return family;
    known.emplace_back(family.model_type);
  }
  for (const auto& wrapper : kWrappers) known.emplace_back(wrapper.model_type);
  reject("{}: model_type '{}' is not supported; supported are {}", where, model_type,
         fmt::join(known, ", "));
}

// Reads quantization_config: FP8 with one scale per tensor or block, or MXFP4 experts.
void read_quantization(ModelConfig& model, const ConfigReader& config) {
  if (!config.has_value("quantization_config")) return;
  const auto quantization = config.section("quantization_config");
  const auto method = quantization.string("quant_method", "unknown");
  const auto& experts = model.names.experts;
  if (method == "mxfp4" && std::ranges::any_of(experts, &ExpertNames::mxfp4)) return;
  if (method != "fp8")
    reject(
        "{}: quantization '{}' is not supported; supported are unquantized checkpoints and fp8 "
        "with one scale per tensor or per block. Use the unquantized checkpoint of this model",
        config.where(), method);
  model.fp8 = true;
  if (!quantization.has_value("weight_block_size")) return;
  model.fp8_block = quantization.integers("weight_block_size");
  if (model.fp8_block.size() != 2 || model.fp8_block[0] < 1 || model.fp8_block[1] < 1)
    quantization.fail("weight_block_size", "numbers of rows and columns, as [128, 128]");
}

// Limits widths so that parameter counts fit into int64: a layer has at most seven matrices.
void check_matrix_widths(const ModelConfig& model, const ConfigReader& config) {
  constexpr std::int64_t kWidest = 1 << 24;
  const auto check = [&](const char* what, std::int64_t width) {
    if (width > kWidest)
      reject("{}: {} is {}, expected at most {}", config.where(), what, width, kWidest);
  };
  check("hidden_size", model.d_model);
  check("intermediate_size", model.d_mlp);
  check("num_attention_heads times head_dim", model.n_heads * model.d_head);
  check("num_attention_heads times v_head_dim", model.n_heads * model.d_value());
  check("kv_lora_rank", model.latent.kv_rank);
  check("q_lora_rank", model.latent.q_rank);
  check("moe_intermediate_size", model.experts.d_mlp);
  check("the width of the shared experts", model.experts.shared_d_mlp);
  check("the number of experts times their width", model.experts.count * model.experts.d_mlp);
  check("the number of channels of linear attention", model.mixer.channels());
  check("hidden_size_per_layer_input of all layers", model.n_layers * model.per_layer.width);
  for (const auto& layer : model.layers) {
    check("intermediate_size of a layer", model.d_mlp_of(layer));
    check("num_attention_heads times head_dim of a layer", model.n_heads * model.d_head_of(layer));
  }
}

void check_model_sizes(const ModelConfig& model, const ConfigReader& config) {
  check_matrix_widths(model, config);
  if (model.activation == Activation::xielu && model.gated_mlp())
    reject("{}: activation 'xielu' is supported where the MLP has no gate, and a {} model has one",
           config.where(), model.family);
  auto widest = model.d_head;
  for (const auto& layer : model.layers) {
    widest = std::max(widest, model.d_head_of(layer));
    if (model.n_heads % model.n_kv_heads_of(layer) != 0)
      reject("{}: {} query heads cannot share {} key heads evenly", config.where(), model.n_heads,
             model.n_kv_heads_of(layer));
  }
  if (static_cast<std::int64_t>(model.layers.size()) != model.n_layers)
    reject("{}: {} layers are described, num_hidden_layers is {}", config.where(),
           model.layers.size(), model.n_layers);
  for (const auto& rope : model.ropes)
    if (rope.dim <= 0 || rope.dim % 2 != 0 || rope.dim > widest)
      reject("{}: RoPE turns {} of {} head dimensions; expected an even number, at most all",
             config.where(), rope.dim, widest);
}

// Returns true if the folder has weights; an index of shards alone does not count.
bool has_weight_files(const std::string& folder) {
  if (!find_gguf_file(folder).empty()) return true;
  return std::ranges::any_of(entry_names(folder), [](const std::string& name) {
    return name.ends_with(".safetensors") || name.ends_with(".bin");
  });
}

}  // namespace

std::string ConfigReader::NumberRange::to_string() const {
  return fmt::format("a number from {} to {}", least, most);
}

ConfigReader::ConfigReader(const Json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  if (!object.is_object())
    reject("{}: expected a JSON object, found {}", where_, object.type_name());
}

bool ConfigReader::has_value(const std::string& key) const {
  const auto entry = object_->find(key);
  return entry != object_->end() && !entry->is_null();
}

bool ConfigReader::contains_key(const std::string& key) const {
  return object_->contains(key);
}

const Json& ConfigReader::raw_value(const std::string& key) const {
  if (!has_value(key)) reject("{}: '{}' is missing", where_, key);
  return (*object_)[key];
}

ConfigReader ConfigReader::section(const std::string& key) const {
  return {raw_value(key), where_ + ": " + key};
}

std::int64_t ConfigReader::positive_integer(const std::string& key) const {
  return read_integer(*this, key, 1);
}

std::int64_t ConfigReader::non_negative_integer(const std::string& key,
                                                std::int64_t fallback) const {
  return has_value(key) ? read_integer(*this, key, 0) : fallback;
}

double ConfigReader::number(const std::string& key, NumberRange range) const {
  const auto value = as_number(raw_value(key));
  if (!value || !std::isfinite(*value)) fail(key, "a finite number");
  if (!range.contains(*value)) fail(key, range.to_string());
  return *value;
}

bool ConfigReader::flag(const std::string& key, bool fallback) const {
  if (!has_value(key)) return fallback;
  if (!raw_value(key).is_boolean()) fail(key, "true or false");
  return raw_value(key).get<bool>();
}

std::string ConfigReader::string(const std::string& key, const std::string& fallback) const {
  if (!has_value(key)) return fallback;
  if (!raw_value(key).is_string()) fail(key, "a string");
  return raw_value(key).get<std::string>();
}

std::vector<std::int64_t> ConfigReader::integers(const std::string& key) const {
  return read_config_list(*this, key, "a list of integers", as_integer);
}

std::vector<double> ConfigReader::numbers(const std::string& key, NumberRange range) const {
  return read_config_list(*this, key, fmt::format("a list of numbers, each {}", range.to_string()),
                          [&](const Json& item) {
                            const auto value = as_number(item);
                            return value && range.contains(*value) ? value : std::nullopt;
                          });
}

std::vector<std::string> ConfigReader::strings(const std::string& key) const {
  return read_config_list(*this, key, "a list of strings", [](const Json& item) {
    return item.is_string() ? std::optional(item.get<std::string>()) : std::nullopt;
  });
}

void ConfigReader::fail(const std::string& key, const std::string& expected) const {
  std::string found = "absent";  // a default value can conflict with other keys
  if (contains_key(key))
    found = (*object_)[key].dump(-1, ' ', false, Json::error_handler_t::replace);
  if (found.size() > 80) found = found.substr(0, 77) + "...";
  reject("{}: '{}' is {}, expected {}", where_, key, found, expected);
}

std::string_view mixer_name(Mixer mixer) {
  constexpr std::string_view kNames[] = {
      "attention layer",           "gated delta net", "Mamba 2 layer", "short convolution", "MLP",
      "Kimi Delta Attention layer"};
  return kNames[static_cast<std::size_t>(mixer)];
}

void require_uniform_head_shapes(const ModelConfig& model, const std::string& what) {
  if (!model.has_equal_heads())
    reject(
        "{}: layers of this {} model differ in the width or number of their key heads, or use keys "
        "of other layers, which is not supported",
        what, model.family);
}

std::string format_layer_ranges_by_attention(const ModelConfig& model, bool attention) {
  std::string list;
  const auto count = std::ssize(model.layers);
  const auto listed = [&](std::int64_t i) {
    return model.layers[as_index(i)].attends() == attention;
  };
  for (std::int64_t first = 0, end = 0; first < count; first = end + 1) {
    for (end = first; end < count && listed(end);) ++end;
    if (end == first) continue;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", first);
    if (end - first > 1) list += fmt::format("-{}", end - 1);
  }
  return list;
}

void log_layers_without_attention(const ModelConfig& model) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const auto layers = format_layer_ranges_by_attention(model, false);
  const std::lock_guard lock(mutex);
  if (layers.empty() || !said.insert(layers).second) return;
  std::vector<std::string> kinds;
  if (model.has_recurrence()) kinds.push_back(fmt::format("{}s", mixer_name(model.mixer.kind)));
  if (std::ranges::count(model.layers, Mixer::none, &LayerConfig::mixer) > 0)
    kinds.emplace_back("MLPs");
  log::info("layers {} have no attention ({}) and are left out", layers, fmt::join(kinds, " and "));
}

bool is_supported_model_type(const std::string& model_type) {
  const auto families = model_family_specs();
  return std::ranges::find(families, model_type, &ModelFamilySpec::model_type) != families.end() ||
         std::ranges::find(kWrappers, model_type, &MultimodalWrapper::model_type) !=
             kWrappers.end();
}

ModelConfig parse_model_config(const Json& json, const std::string& where) {
  const ConfigReader top(json, where);
  if (!top.has_value("model_type"))
    reject("{}: 'model_type' is missing, so the family is not known", where);
  std::string model_type = top.string("model_type", "");
  const auto wrapper = std::ranges::find(kWrappers, model_type, &MultimodalWrapper::model_type);
  const bool wrapped = wrapper != kWrappers.end();
  const ConfigReader text = wrapped ? top.section("text_config") : top;
  if (wrapped) model_type = text.string("model_type", std::string(wrapper->text_model_type));

  ModelConfig model;
  model.family = model_type;
  model.wrapped = wrapped;
  find_model_family(model_type, where).read(model, text);
  if (wrapped && !text.has_value("tie_word_embeddings"))
    model.tied = top.flag("tie_word_embeddings", model.tied);
  read_quantization(model, top);
  model.stored_dtype = text.string(
      "dtype", text.string("torch_dtype", top.string("dtype", top.string("torch_dtype", ""))));
  check_model_sizes(model, text);
  return model;
}

ModelConfig read_model_config(const std::string& folder) {
  return translate_exceptions(
      [&] { return parse_model_config(load_config(folder), config_path(folder)); });
}

LoadedCheckpoint load_unprocessed_checkpoint(const std::string& folder) {
  return load_unprocessed_checkpoint(folder, nullptr);
}

LoadedCheckpoint load_unprocessed_checkpoint(const std::string& folder, const Json& overrides) {
  LoadedCheckpoint model{Checkpoint::open(folder), {}, {}};
  const Json config = overrides.is_null() ? model.checkpoint.config()
                                          : merge_overrides(model.checkpoint.config(), overrides);
  model.config = parse_model_config(config, model.checkpoint.config_path());
  model.weights = bind_weights(model.config, model.checkpoint);
  return model;
}

CheckpointInfo inspect_checkpoint(const std::string& folder) {
  return translate_exceptions([&] {
    CheckpointInfo info;
    info.config = read_model_config(folder);
    if (has_weight_files(folder)) {
      const auto checkpoint = Checkpoint::open(folder);
      info.widened_bytes = check_tensors_and_count_widened_bytes(info.config, checkpoint);
      info.has_weights = true;
      info.bytes = checkpoint.size_bytes();
      for (const auto& name : checkpoint.tensor_names())
        info.tensors.push_back(checkpoint.tensor_info(name));
    } else if (const auto indexed = read_shard_index(folder); !indexed.index.empty()) {
      detect_tensor_naming(info.config, indexed.names, indexed.index);
      info.indexed_tensors = static_cast<std::int64_t>(indexed.names.size());
    }
    return info;
  });
}

}  // namespace qkscope
