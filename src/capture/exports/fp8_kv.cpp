// Exports scales for an FP8 KV cache in the layout of compressed-tensors: the output folder links
// the files of the checkpoint and adds the scales as another safetensors file.
#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "base/io/folder.h"
#include "base/io/mapped_file.h"
#include "capture/exports/export_input.h"
#include "capture/format/metadata.h"
#include "input/checkpoint/checkpoint.h"
#include "input/checkpoint/hub_cache.h"

namespace qkscope {
namespace {

namespace fs = std::filesystem;

constexpr double kLargestE4m3 = 448;
constexpr char kScalesFile[] = "kv_scales.safetensors";
constexpr const char* kWeightIndexFile = "model.safetensors.index.json";
constexpr char kSingleFile[] = "model.safetensors";
// transformers ignores the index when a file named model.safetensors exists, so the link to a
// single weight file gets another name.
constexpr char kLinkedSingleFile[] = "model-weights.safetensors";

// Returns the name of the model's attention class in transformers, the target that the exported
// quantization config names.
std::string attention_class_name(const ExportInput& input, const std::string& model_type) {
  static const std::map<std::string, std::string> kClasses = {{"llama", "LlamaAttention"},
                                                              {"mistral", "MistralAttention"},
                                                              {"ministral", "MinistralAttention"},
                                                              {"ministral3", "Ministral3Attention"},
                                                              {"qwen2", "Qwen2Attention"},
                                                              {"qwen3", "Qwen3Attention"},
                                                              {"smollm3", "SmolLM3Attention"},
                                                              {"gemma3_text", "Gemma3Attention"},
                                                              {"glm", "GlmAttention"},
                                                              {"glm4", "Glm4Attention"}};
  const auto found = kClasses.find(model_type);
  if (found == kClasses.end())
    input.reject_export(
        fmt::format("the attention class of its type {} is not known, which scales of "
                    "queries name; leave out --queries",
                    quote_text(model_type)));
  return found->second;
}

// Adds the tensor "NAME_scale" of one layer and, with --queries, its zero point.
void add_scale_tensor(SafetensorsBuilder& tensors, const ExportOptions& options,
                      const std::string& name, const HeadMoments& moments) {
  const bool per_head = options.strategy == "attn_head";
  std::vector<float> largest(per_head ? as_index(moments.heads) : 1);  // largest |x|
  for (std::size_t i = 0; i < moments.min.size(); ++i) {
    float& value = largest[per_head ? i / as_index(moments.dim) : 0];
    value = std::max({value, -moments.min[i], moments.max[i]});
  }
  const Shape shape = per_head ? Shape{moments.heads, 1, 1} : Shape{1};
  Tensor& scale = tensors.add(name + "_scale", shape);
  for (std::size_t i = 0; i < largest.size(); ++i)
    // An all-zero head gets scale 1, because readers divide by the scale.
    scale.data<float>()[i] =
        largest[i] > 0
            ? static_cast<float>(static_cast<double>(largest[i]) / kLargestE4m3 * options.margin)
            : 1.0f;
  if (!options.queries) return;
  Tensor& zero = tensors.add(name + "_zero_point", shape, DType::f8_e4m3);
  std::fill_n(zero.view().bytes(), zero.view().size_bytes(), std::byte{0});
}

// Returns the prefix of the layer tensors in the checkpoint, for example "model.layers.".
std::string layer_tensor_prefix(const ExportInput& input, const std::vector<std::string>& names) {
  constexpr std::string_view kEnd = "layers.0.self_attn.k_proj.weight";
  for (const auto& name : names)
    if (name.ends_with(kEnd)) return name.substr(0, name.size() - kEnd.size()) + "layers.";
  input.reject_export(
      "its checkpoint has no tensor layers.0.self_attn.k_proj.weight, beside which the "
      "scales stand");
}

Json quantization_config(const ExportInput& input, const std::string& model_type) {
  const Json scheme = {{"num_bits", 8},
                       {"type", "float"},
                       {"strategy", input.options().strategy},
                       {"dynamic", false},
                       {"symmetric", true}};
  Json groups = Json::object();
  if (input.options().queries)
    groups["attention"] = {{"targets", {attention_class_name(input, model_type)}},
                           {"input_activations", scheme}};
  return {{"quant_method", "compressed-tensors"}, {"format", "dense"},
          {"quantization_status", "frozen"},      {"ignore", Json::array()},
          {"config_groups", std::move(groups)},   {"kv_cache_scheme", scheme}};
}

std::string checkpoint_folder(const ExportInput& input) {
  const auto& asked = input.options().checkpoint;
  if (!asked.empty()) return resolve_checkpoint_path(asked, "");
  auto revision = input.metadata_text(metadata::kCommit);
  if (revision.empty()) revision = input.metadata_text(metadata::kRevision);
  return resolve_checkpoint_path(input.metadata_text(metadata::kModel), revision);
}

// Maps tensor names to the names of the weight files in the output folder.
std::map<std::string, std::string> weight_files_by_tensor(const std::string& folder,
                                                          const std::vector<std::string>& names) {
  const auto index = folder + "/" + kWeightIndexFile;
  if (!path_exists(folder + "/" + kSingleFile) && path_exists(index))
    return parse_weight_index(MappedFile(index).text(), index);
  if (!path_exists(folder + "/" + kSingleFile))
    reject("{}: its weights are no safetensors; scales can be put beside those only", folder);
  std::map<std::string, std::string> map;
  for (const auto& name : names) map[name] = kLinkedSingleFile;
  return map;
}

// Symlinks the files of a checkpoint into the output folder, except those that the export writes.
void link_checkpoint_files(const std::string& from, const std::string& to) {
  for (const auto& name : entry_names(from)) {
    if (name == "config.json" || name == kWeightIndexFile || name == kScalesFile) continue;
    const auto link = fs::path(to) / (name == kSingleFile ? kLinkedSingleFile : name);
    std::error_code error;
    fs::remove(link, error);
    fs::create_symlink(fs::canonical(fs::path(from) / name), link, error);
    if (error) throw_system_error("link", link.string(), error.value());
  }
}

void check_checkpoint_shape(const ExportInput& input, const std::string& folder) {
  const ModelConfig model = read_model_config(folder);
  if (model.n_layers != input.layer_count() || model.n_kv_heads != input.key_head_count() ||
      model.n_heads != input.head_count() || model.d_head != input.head_dim())
    reject(
        "{}: {} layers, {} query and {} key heads of {}; the statistics are of {}, {}, {} "
        "and {}: give the --model they were made with",
        folder, model.n_layers, model.n_heads, model.n_kv_heads, model.d_head, input.layer_count(),
        input.head_count(), input.key_head_count(), input.head_dim());
  for (std::int64_t layer = 0; layer < input.layer_count(); ++layer)
    if (std::ranges::count(input.statistics().layers, layer) == 0)
      input.reject_export(
          fmt::format("layer {} attends to images, and there are no scales of its keys", layer));
}

}  // namespace

std::string export_fp8_kv_scales(const ExportInput& input) {
  const auto from = checkpoint_folder(input);
  Json config = load_config(from);
  if (config.contains("quantization_config"))
    input.reject_export("its checkpoint has a quantization_config already, and a file holds one");
  check_checkpoint_shape(input, from);
  const Checkpoint checkpoint = Checkpoint::open(from);
  const auto names = checkpoint.tensor_names();
  const auto prefix = layer_tensor_prefix(input, names);
  SafetensorsBuilder scales;
  for (const auto layer : input.statistics().layers) {
    const auto add = [&](const char* letter, VectorKind kind, VectorStage stage) {
      add_scale_tensor(scales, input.options(),
                       fmt::format("{}{}.self_attn.{}", prefix, layer, letter),
                       input.moments(kind, stage, layer, "all"));
    };
    if (input.options().queries) add("q", VectorKind::query, VectorStage::post);
    add("k", VectorKind::key, VectorStage::post);
    add("v", VectorKind::value, VectorStage::pre);
  }
  auto map = weight_files_by_tensor(from, names);
  std::uint64_t total = checkpoint.size_bytes();
  for (const auto& [name, tensor] : scales.named_tensors()) {
    map[name] = kScalesFile;
    total += tensor.size_bytes();
  }
  config["quantization_config"] = quantization_config(input, config.value("model_type", ""));
  const auto& folder = input.options().out;
  make_output_folder(input.options(), folder);
  if (fs::equivalent(folder, from))
    reject("{}: is the checkpoint itself; give another --out", folder);
  link_checkpoint_files(from, folder);
  write_safetensors(folder + "/" + kScalesFile, scales.named_tensors(), {{"format", "pt"}});
  write_json_file(folder + "/" + kWeightIndexFile,
                  {{"metadata", {{"total_size", total}}}, {"weight_map", map}});
  write_json_file(folder + "/config.json", config);
  return folder;
}

}  // namespace qkscope
