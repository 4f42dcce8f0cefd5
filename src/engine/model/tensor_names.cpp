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

// Returns the first naming scheme that the expert and MLP tensors match; scheme 0 if none does.
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
    const auto end = names.mxfp4 ? "_blocks" : is_stacked_tensor_name(names.down) ? "" : ".weight";
    if (has_mlp && has(true, expert_tensor_name(names.down, 0) + end)) return names;
  }
  return spellings.front();
}

// Returns the first naming scheme that the tensors of mixer layers match; scheme 0 if none does.
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

// Finds the prefixes of tensor names by trying those of published checkpoints.
TensorNaming find_tensor_prefixes(const ModelConfig& model, const std::set<std::string>& present,
                                  const std::string& where) {
  TensorNaming naming;
  const auto plain_head = model.names.head + ".weight";
  for (const auto& head : {plain_head, "language_model." + plain_head})
    if (present.contains(head)) naming.head = head;
  // Several tensors are tried to identify the backbone, because a tied embedding may be stored as
  // the output embedding, and norms may have no weights.
  const std::array marks = {embedding_tensor_name(model), model.names.final_norm + ".weight",
                            fmt::format("{}.0.{}.weight", model.names.layers, model.names.down)};
  for (const auto* backbone : kBackbones) {
    naming.backbone = backbone;
    for (const auto& mark : marks)
      if (present.contains(naming.backbone + mark)) return naming;
  }
  reject("{}: found no language model: none of {} under any of the prefixes {}", where,
         fmt::join(marks, ", "), fmt::join(kBackbones, ", "));
}

void check_no_tensor_missing(const ModelConfig& model, const std::set<std::string>& present,
                             const TensorNaming& naming, const std::string& where) {
  std::vector<std::string> missing;
  for (const auto& spec : expected_tensors(model, naming)) {
    const bool stands_in =
        spec.name == embedding_tensor_name(model) && model.tied && !naming.head.empty();
    if (!stands_in && !present.contains(naming.backbone + spec.name))
      missing.push_back(naming.backbone + spec.name);
  }
  if (!model.tied && naming.head.empty()) missing.push_back(model.names.head + ".weight");
  if (!missing.empty())
    reject(
        "{}: missing tensor {}; the checkpoint does not hold the model that its config.json "
        "describes",
        where, format_name_list(missing, kMostListed));
}

void reject_unknown_tensors(const ModelConfig& model, const std::set<std::string>& present,
                            const TensorNaming& naming, const std::string& where) {
  std::set<std::string> expected;
  for (const auto& spec : expected_tensors(model, naming))
    expected.insert(naming.backbone + spec.name);
  std::vector<std::string> surplus;
  for (const auto& name : present) {
    if (expected.contains(name) || name == naming.head) continue;
    const bool ours = name.starts_with(naming.backbone);
    if (!ours && model.wrapped) continue;  // tensors of the vision tower and projector
    const auto below =
        ours ? std::string_view(name).substr(naming.backbone.size()) : std::string_view(name);
    if (!is_known_unused_tensor(model, below)) surplus.push_back(name);
  }
  if (!surplus.empty())
    reject(
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

bool is_stacked_tensor_name(const std::string& name) {
  return name.find("{}") == std::string::npos;
}

TensorNaming detect_tensor_naming(const ModelConfig& model, const std::vector<std::string>& names,
                                  const std::string& where) {
  const std::set<std::string> present(names.begin(), names.end());
  auto naming = find_tensor_prefixes(model, present, where);
  naming.experts = find_expert_naming(model, present, naming.backbone);
  naming.mixer = find_mixer_naming(model, present, naming.backbone);
  check_no_tensor_missing(model, present, naming, where);
  reject_unknown_tensors(model, present, naming, where);
  return naming;
}

std::int64_t parameter_count(const ModelConfig& model) {
  return translate_exceptions([&] {
    std::int64_t count = model.tied ? 0 : model.vocab_size * model.d_model;
    for (const auto& spec : expected_tensors(model)) count += spec.shape.count();
    return count;
  });
}

}  // namespace qkscope
