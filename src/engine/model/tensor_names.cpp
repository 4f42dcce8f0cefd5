#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <fmt/ranges.h>

#include "base/core/error.h"
#include "base/core/text.h"
#include "engine/model/loaded_checkpoint.h"

namespace qkscope {
namespace {

constexpr std::array kBackbones = {"model.",    "language_model.model.", "model.language_model.",
                                   "gpt_neox.", "transformer.",          "backbone.",
                                   ""};

constexpr std::size_t kMostListed = 5;  // names in a message

bool ends_with_any(std::string_view name, const auto& endings) {
  return std::ranges::any_of(endings, [&](const auto& ending) { return name.ends_with(ending); });
}

// Returns true for tensors that the model does not use: cross-attention layers, RoPE frequencies,
// masks, FP8 scales, multi-token prediction layers.
bool is_known_unused_tensor(const ModelConfig& model, std::string_view name) {
  constexpr std::array kScales = {".weight_scale_inv", ".activation_scale"};
  if (name.ends_with("rotary_emb.inv_freq")) return true;
  if (ends_with_any(name, model.names.buffers)) return true;
  if (std::ranges::any_of(model.names.unused, [&](auto& begin) { return name.starts_with(begin); }))
    return true;
  if (model.fp8 && ends_with_any(name, kScales)) return true;
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    if (model.layers[i].cross_attention &&
        name.starts_with(fmt::format("{}.{}.", model.names.layers, i)))
      return true;
  return false;
}

// Returns the expert names that fit the first expert layer and MLP layer, or the first scheme.
ExpertNames find_expert_naming(const ModelConfig& model, const std::set<std::string>& present,
                               const std::string& backbone) {
  const auto& spellings = model.names.experts;
  if (spellings.empty()) return {};
  const auto has = [&](bool experts, const std::string& name) {
    const auto layer = std::ranges::find(model.layers, experts, &LayerConfig::experts);
    return layer == model.layers.end() ||
           present.contains(fmt::format("{}{}.{}.{}", backbone, model.names.layers,
                                        layer - model.layers.begin(), name));
  };
  for (const auto& names : spellings) {
    const auto mlp = names.dense.empty() ? model.names.down : names.dense + ".down_proj";
    const bool has_mlp =
        (names.dense.empty() && model.experts.count > 0) || has(false, mlp + ".weight");
    const auto end = names.mxfp4 ? "_blocks" : holds_all_experts(names.down) ? "" : ".weight";
    if (has_mlp && has(true, expert_tensor_name(names.down, 0) + end)) return names;
  }
  return spellings.front();
}

// Returns the scheme of mixer names whose norms, convolution and joint projection are present in
// the first mixer layer; the first scheme if none fits.
MixerNames find_mixer_naming(const ModelConfig& model, const std::set<std::string>& present,
                             const std::string& backbone) {
  const auto has_weight = [&](Mixer mixer, const std::string& name) {
    const auto layer = std::ranges::find(model.layers, mixer, &LayerConfig::mixer);
    return name.empty() ||
           present.contains(fmt::format("{}{}.{}.{}.weight", backbone, model.names.layers,
                                        layer - model.layers.begin(), name));
  };
  for (const auto& names : model.names.mixer)
    if (has_weight(model.mixer.kind, names.input_norm) &&
        has_weight(model.mixer.kind, names.convolutions.front()) &&
        has_weight(model.mixer.kind, names.qkvz) &&
        has_weight(Mixer::attention, names.post_attention_norm))
      return names;
  return model.names.mixer.empty() ? MixerNames() : model.names.mixer.front();
}

// Finds the prefix of the tensor names by trying the prefixes of published checkpoints.
TensorNaming find_tensor_naming(const ModelConfig& model, const std::set<std::string>& present,
                                const std::string& where) {
  TensorNaming prefix;
  const auto plain_head = model.names.head + ".weight";
  for (const auto& head : {plain_head, "language_model." + plain_head})
    if (present.contains(head)) prefix.head = head;
  // Several tensors are tried to identify the prefix, because a tied embedding may be stored as the
  // output embedding, and norms may have no weights.
  const std::array marks = {embedding_tensor_name(model), model.names.final_norm + ".weight",
                            fmt::format("{}.0.{}.weight", model.names.layers, model.names.down)};
  for (const auto* backbone : kBackbones) {
    prefix.backbone = backbone;
    for (const auto& mark : marks)
      if (present.contains(prefix.backbone + mark)) return prefix;
  }
  bad_input("{}: found no language model: none of {} under any of the prefixes {}", where,
            fmt::join(marks, ", "), fmt::join(kBackbones, ", "));
}

void check_no_tensor_missing(const ModelConfig& model, const std::set<std::string>& present,
                             const TensorNaming& prefix, const std::string& where) {
  std::vector<std::string> missing;
  for (const auto& spec : expected_tensors(model, prefix)) {
    const bool stands_in =
        spec.name == embedding_tensor_name(model) && model.tied && !prefix.head.empty();
    if (!stands_in && !present.contains(prefix.backbone + spec.name))
      missing.push_back(prefix.backbone + spec.name);
  }
  if (!model.tied && prefix.head.empty()) missing.push_back(model.names.head + ".weight");
  if (!missing.empty())
    bad_input(
        "{}: missing tensor {}; the checkpoint does not hold the model that its config.json "
        "describes",
        where, format_name_list(missing, kMostListed));
}

void refuse_unknown_tensors(const ModelConfig& model, const std::set<std::string>& present,
                            const TensorNaming& prefix, const std::string& where) {
  std::set<std::string> expected;
  for (const auto& spec : expected_tensors(model, prefix))
    expected.insert(prefix.backbone + spec.name);
  std::vector<std::string> surplus;
  for (const auto& name : present) {
    if (expected.contains(name) || name == prefix.head) continue;
    const bool ours = name.starts_with(prefix.backbone);
    if (!ours && model.wrapped) continue;  // tensors of the vision tower and projector
    const auto below =
        ours ? std::string_view(name).substr(prefix.backbone.size()) : std::string_view(name);
    if (!is_known_unused_tensor(model, below)) surplus.push_back(name);
  }
  if (!surplus.empty())
    bad_input(
        "{}: unexpected tensor {}; config.json describes a model without it, so its results would "
        "be wrong",
        where, format_name_list(surplus, kMostListed));
}

}  // namespace

std::string embedding_tensor_name(const ModelConfig& model) {
  return model.names.embedding + ".weight";
}

std::string expert_tensor_name(const std::string& name, std::int64_t expert) {
  const auto place = name.find("{}");
  if (place == std::string::npos) return name;
  return fmt::format("{}{}{}", name.substr(0, place), expert, name.substr(place + 2));
}

bool holds_all_experts(const std::string& name) {
  return name.find("{}") == std::string::npos;
}

TensorNaming check_tensor_names(const ModelConfig& model, const std::vector<std::string>& names,
                                const std::string& where) {
  const std::set<std::string> present(names.begin(), names.end());
  auto prefix = find_tensor_naming(model, present, where);
  prefix.experts = find_expert_naming(model, present, prefix.backbone);
  prefix.mixer = find_mixer_naming(model, present, prefix.backbone);
  check_no_tensor_missing(model, present, prefix, where);
  refuse_unknown_tensors(model, present, prefix, where);
  return prefix;
}

std::int64_t parameter_count(const ModelConfig& model) {
  return translate_exceptions([&] {
    std::int64_t count = model.tied ? 0 : model.vocab_size * model.d_model;
    for (const auto& spec : expected_tensors(model)) count += spec.shape.count();
    return count;
  });
}

}  // namespace qkscope
