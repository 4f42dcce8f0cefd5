#include "engine/model/model_config.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/translate_exceptions.h"
#include "base/io/folder.h"
#include "base/io/json.h"
#include "engine/model/family.h"
#include "engine/model/loaded_checkpoint.h"
#include "engine/model/tensor_table.h"
#include "input/checkpoint/checkpoint.h"
#include "input/checkpoint/gguf.h"

namespace qkscope {
namespace {

// Multimodal checkpoints describe their language model in text_config.
struct Wrapper {
  std::string_view model_type;
  std::string_view text_model_type;  // model_type used if text_config has none
};
constexpr std::array kWrappers = {
    Wrapper{"mistral3", "mistral"},
    Wrapper{"mllama", "mllama_text_model"},
    Wrapper{"gemma3", "gemma3_text"},
};

const Wrapper* find_wrapper(const std::string& model_type) {
  for (const auto& wrapper : kWrappers)
    if (wrapper.model_type == model_type) return &wrapper;
  return nullptr;
}

const Family& find_family(const std::string& model_type, const std::string& where) {
  std::vector<std::string> known;
  for (const auto& family : families()) {
    if (family.model_type == model_type) return family;
    known.emplace_back(family.model_type);
  }
  for (const auto& wrapper : kWrappers) known.emplace_back(wrapper.model_type);
  bad_input("{}: model_type '{}' is not supported; supported are {}", where, model_type,
            fmt::join(known, ", "));
}

// Supports FP8 with one scale per tensor or block, and MXFP4 in families published in it.
void read_quantization(ModelConfig& model, const ConfigReader& config) {
  if (!config.has("quantization_config")) return;
  const auto quantization = config.section("quantization_config");
  const auto method = quantization.string("quant_method", "unknown");
  const auto& experts = model.names.experts;
  if (method == "mxfp4" && std::ranges::any_of(experts, &ExpertNames::mxfp4)) return;
  if (method != "fp8")
    bad_input(
        "{}: quantization '{}' is not supported; supported are unquantized checkpoints and fp8 "
        "with one scale per tensor or per block. Use the unquantized checkpoint of this model",
        config.where(), method);
  model.fp8 = true;
  if (!quantization.has("weight_block_size")) return;
  model.fp8_block = quantization.integers("weight_block_size");
  if (model.fp8_block.size() != 2 || model.fp8_block[0] < 1 || model.fp8_block[1] < 1)
    quantization.fail("weight_block_size", "numbers of rows and columns, as [128, 128]");
}

// Keeps parameter counts within int64: seven matrices of two such widths per layer.
void check_widths(const ModelConfig& model, const ConfigReader& config) {
  constexpr std::int64_t kWidest = 1 << 24;
  const auto check = [&](const char* what, std::int64_t width) {
    if (width > kWidest)
      bad_input("{}: {} is {}, expected at most {}", config.where(), what, width, kWidest);
  };
  check("hidden_size", model.d_model);
  check("intermediate_size", model.d_mlp);
  check("num_attention_heads times head_dim", model.n_heads * model.d_head);
  check("moe_intermediate_size", model.experts.d_mlp);
  check("the number of experts times their width", model.experts.count * model.experts.d_mlp);
}

void check_sizes(const ModelConfig& model, const ConfigReader& config) {
  check_widths(model, config);
  if (model.activation == Activation::xielu && model.gated_mlp())
    bad_input(
        "{}: activation 'xielu' is supported where the MLP has no gate, and a {} model has one",
        config.where(), model.family);
  if (model.n_heads % model.n_kv_heads != 0)
    bad_input("{}: {} query heads cannot share {} key heads evenly", config.where(), model.n_heads,
              model.n_kv_heads);
  if (static_cast<std::int64_t>(model.layers.size()) != model.n_layers)
    bad_input("{}: {} layers are described, num_hidden_layers is {}", config.where(),
              model.layers.size(), model.n_layers);
  for (const auto& rope : model.ropes)
    if (rope.dim <= 0 || rope.dim % 2 != 0 || rope.dim > model.d_head)
      bad_input("{}: RoPE turns {} of {} head dimensions; expected an even number, at most all",
                config.where(), rope.dim, model.d_head);
}

// Returns true if the folder has weights; an index of shards alone does not count.
bool has_weight_files(const std::string& folder) {
  if (!find_gguf(folder).empty()) return true;
  return std::ranges::any_of(names_in(folder), [](const std::string& name) {
    return name.ends_with(".safetensors") || name.ends_with(".bin");
  });
}

void inspect_weights(const std::string& folder, CheckpointInfo& info) {
  const auto checkpoint = Checkpoint::open(folder);
  info.widened_bytes = check_weights(info.config, checkpoint);
  info.has_weights = true;
  info.bytes = checkpoint.bytes();
  for (const auto& name : checkpoint.names()) info.tensors.push_back(checkpoint.info(name));
}

void inspect_index(const std::string& folder, CheckpointInfo& info) {
  const auto indexed = indexed_tensors(folder);
  if (indexed.index.empty()) return;
  check_names(info.config, indexed.names, indexed.index);
  info.indexed_tensors = static_cast<std::int64_t>(indexed.names.size());
}

}  // namespace

ModelConfig parse_model_config(const Json& json, const std::string& where) {
  const ConfigReader top(json, where);
  if (!top.has("model_type"))
    bad_input("{}: 'model_type' is missing, so the family is not known", where);
  std::string model_type = top.string("model_type", "");
  const Wrapper* wrapper = find_wrapper(model_type);
  const ConfigReader text = wrapper ? top.section("text_config") : top;
  if (wrapper) model_type = text.string("model_type", std::string(wrapper->text_model_type));

  ModelConfig model;
  model.family = model_type;
  model.wrapped = wrapper != nullptr;
  find_family(model_type, where).read(model, text);
  if (wrapper && !text.has("tie_word_embeddings"))
    model.tied = top.flag("tie_word_embeddings", model.tied);
  read_quantization(model, top);
  model.stored_dtype = text.string(
      "dtype", text.string("torch_dtype", top.string("dtype", top.string("torch_dtype", ""))));
  check_sizes(model, text);
  return model;
}

ModelConfig read_model_config(const std::string& folder) {
  return translate_exceptions(
      [&] { return parse_model_config(load_config(folder), config_source(folder)); });
}

CheckpointInfo inspect_checkpoint(const std::string& folder) {
  return translate_exceptions([&] {
    CheckpointInfo info;
    info.config = read_model_config(folder);
    if (has_weight_files(folder))
      inspect_weights(folder, info);
    else
      inspect_index(folder, info);
    return info;
  });
}

}  // namespace qkscope
