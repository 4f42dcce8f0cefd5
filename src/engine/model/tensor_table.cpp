#include "engine/model/tensor_table.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include <fmt/ranges.h>

#include "base/core/error.h"

namespace qkscope {
namespace {

constexpr std::array kBackbones = {"model.",    "language_model.model.", "model.language_model.",
                                   "gpt_neox.", "transformer.",          ""};

// Collects the names and shapes of one model. An empty name means that there is no such tensor.
class TableBuilder {
 public:
  TableBuilder(const ModelConfig& model, const ExpertNames& experts)
      : model_(model), names_(model.names), expert_names_(experts) {}

  std::vector<TensorSpec> build() {
    add(embedding_name(model_), {model_.embedding_rows, model_.d_model});
    if (model_.learned_positions())
      add(names_.positions + ".weight", {model_.max_positions, model_.d_model});
    for (std::size_t i = 0; i < model_.layers.size(); ++i)
      if (!model_.layers[i].cross_attention) add_layer(i);
    add_norm(names_.final_norm, model_.d_model, model_.norm_bias);
    return std::move(specs_);
  }

 private:
  void add(const std::string& name, const Shape& shape) {
    specs_.push_back({prefix_ + name, shape});
  }

  void add_linear(const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    if (name.empty()) return;
    add(name + ".weight", names_.transposed ? Shape{in, out} : Shape{out, in});
    if (bias) add(name + ".bias", {out});
  }

  void add_norm(const std::string& name, std::int64_t width, bool bias) {
    if (name.empty()) return;
    if (model_.norm_weight) add(name + ".weight", {width});
    if (bias) add(name + ".bias", {width});
  }

  void add_layer(std::size_t index) {
    prefix_ = fmt::format("{}.{}.", names_.layers, index);
    add_norm(names_.input_norm, model_.d_model, model_.norm_bias);
    add_attention();
    add_norm(names_.post_attention_norm, model_.d_model, model_.norm_bias);
    add_norm(names_.mlp_norm, model_.d_model, model_.norm_bias);
    if (model_.layers[index].experts)
      add_experts();
    else
      add_mlp();
    add_norm(names_.post_mlp_norm, model_.d_model, model_.norm_bias);
    prefix_.clear();
  }

  void add_attention() {
    const auto d = model_.d_model;
    const auto q_rows = model_.n_heads * model_.d_head;
    const auto kv_rows = model_.n_kv_heads * model_.d_head;
    if (names_.qkv.empty()) {
      add_linear(names_.q, q_rows, d, model_.qkv_bias);
      add_linear(names_.k, kv_rows, d, model_.qkv_bias);
      add_linear(names_.v, kv_rows, d, model_.qkv_bias);
    }
    add_linear(names_.qkv, q_rows + 2 * kv_rows, d, model_.qkv_bias);
    if (model_.has_sinks()) add(names_.sinks, {model_.n_heads});
    add_linear(names_.o, d, q_rows, model_.output_bias);
    if (!model_.qk_norm) return;
    add_norm(names_.q_norm, model_.qk_norm_whole ? q_rows : model_.d_head, false);
    add_norm(names_.k_norm, model_.qk_norm_whole ? kv_rows : model_.d_head, false);
  }

  void add_mlp() {
    if (names_.gate_up.empty()) {
      add_linear(names_.gate, model_.d_mlp, model_.d_model, model_.mlp_bias);
      add_linear(names_.up, model_.d_mlp, model_.d_model, model_.mlp_bias);
    }
    add_linear(names_.gate_up, 2 * model_.d_mlp, model_.d_model, model_.mlp_bias);
    if (model_.activation == Activation::xielu) {
      for (const auto* name : {".alpha_p", ".alpha_n"}) add(names_.activation + name, {1});
      for (const auto* name : {".beta", ".eps"}) add(names_.activation + name, {});
    }
    add_linear(names_.down, model_.d_model, model_.d_mlp, model_.mlp_bias);
  }

  void add_experts() {
    const auto& experts = model_.experts;
    add(expert_names_.router + ".weight", {experts.count, model_.d_model});
    if (experts.router_bias) add(expert_names_.router + ".bias", {experts.count});
    add_expert_matrix(expert_names_.gate, experts.d_mlp, model_.d_model);
    add_expert_matrix(expert_names_.up, experts.d_mlp, model_.d_model);
    add_expert_matrix(expert_names_.gate_up, 2 * experts.d_mlp, model_.d_model);
    add_expert_matrix(expert_names_.down, model_.d_model, experts.d_mlp);
  }

  void add_expert_matrix(const std::string& name, std::int64_t out, std::int64_t in) {
    const auto count = model_.experts.count;
    if (name.empty()) return;
    if (!holds_all_experts(name)) {
      for (std::int64_t i = 0; i < count; ++i) add(expert_name(name, i) + ".weight", {out, in});
      return;
    }
    if (expert_names_.mxfp4) {
      add(name + "_blocks", {count, out, in / 32, 16});
      add(name + "_scales", {count, out, in / 32});
    } else {
      add(name, expert_names_.transposed ? Shape{count, in, out} : Shape{count, out, in});
    }
    if (model_.experts.bias) add(name + "_bias", {count, out});
  }

  const ModelConfig& model_;
  const TensorNames& names_;
  const ExpertNames& expert_names_;
  std::string prefix_;  // "layers.N." inside a layer
  std::vector<TensorSpec> specs_;
};

bool ends_with_any(std::string_view name, const auto& endings) {
  return std::ranges::any_of(endings, [&](const auto& ending) { return name.ends_with(ending); });
}

// Returns true for extra tensors: cross-attention layers, RoPE frequencies, masks, FP8 scales.
bool is_known_extra(const ModelConfig& model, std::string_view name) {
  constexpr std::array kScales = {".weight_scale_inv", ".activation_scale"};
  if (name.ends_with("rotary_emb.inv_freq")) return true;
  if (ends_with_any(name, model.names.buffers)) return true;
  if (model.fp8 && ends_with_any(name, kScales)) return true;
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    if (model.layers[i].cross_attention &&
        name.starts_with(fmt::format("{}.{}.", model.names.layers, i)))
      return true;
  return false;
}

[[noreturn]] void fail_with_names(const std::string& where, const char* what,
                                  const std::vector<std::string>& names, const char* advice) {
  constexpr std::size_t kShown = 5;
  const auto shown = std::vector(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
  const auto more =
      names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : std::string();
  bad_input("{}: {} {}{}; {}", where, what, fmt::join(shown, ", "), more, advice);
}

// Returns the naming scheme that the first expert layer uses; the first known one if none fits.
ExpertNames find_experts(const ModelConfig& model, const std::set<std::string>& present,
                         const std::string& backbone) {
  const auto& spellings = model.names.experts;
  if (spellings.empty()) return {};
  const auto layer = std::ranges::find_if(model.layers, &LayerConfig::experts);
  const auto at =
      fmt::format("{}{}.{}.", backbone, model.names.layers, layer - model.layers.begin());
  for (const auto& names : spellings) {
    const auto end = names.mxfp4 ? "_blocks" : holds_all_experts(names.down) ? "" : ".weight";
    if (present.contains(at + expert_name(names.down, 0) + end)) return names;
  }
  return spellings.front();
}

// Finds the prefix of the language model among those of published checkpoints.
TensorPrefix find_prefix(const ModelConfig& model, const std::set<std::string>& present,
                         const std::string& where) {
  TensorPrefix prefix;
  const auto plain_head = model.names.head + ".weight";
  for (const auto& head : {plain_head, "language_model." + plain_head})
    if (present.contains(head)) prefix.head = head;
  // A tied embedding may be stored as the output embedding, and norms may have no weights.
  const std::array marks = {embedding_name(model), model.names.final_norm + ".weight",
                            fmt::format("{}.0.{}.weight", model.names.layers, model.names.down)};
  for (const auto* backbone : kBackbones) {
    prefix.backbone = backbone;
    for (const auto& mark : marks)
      if (present.contains(prefix.backbone + mark)) return prefix;
  }
  bad_input("{}: found no language model: none of {} under any of the prefixes {}", where,
            fmt::join(marks, ", "), fmt::join(kBackbones, ", "));
}

void check_missing(const ModelConfig& model, const std::set<std::string>& present,
                   const TensorPrefix& prefix, const std::string& where) {
  std::vector<std::string> missing;
  for (const auto& spec : tensor_table(model, prefix.experts)) {
    const bool stands_in = spec.name == embedding_name(model) && model.tied && !prefix.head.empty();
    if (!stands_in && !present.contains(prefix.backbone + spec.name))
      missing.push_back(prefix.backbone + spec.name);
  }
  if (!model.tied && prefix.head.empty()) missing.push_back(model.names.head + ".weight");
  if (!missing.empty())
    fail_with_names(where, "missing tensor", missing,
                    "the checkpoint does not hold the model that its config.json describes");
}

void check_surplus(const ModelConfig& model, const std::set<std::string>& present,
                   const TensorPrefix& prefix, const std::string& where) {
  std::set<std::string> expected;
  for (const auto& spec : tensor_table(model, prefix.experts))
    expected.insert(prefix.backbone + spec.name);
  std::vector<std::string> surplus;
  for (const auto& name : present) {
    if (expected.contains(name) || name == prefix.head) continue;
    const bool ours = name.starts_with(prefix.backbone);
    if (!ours && model.wrapped) continue;  // tensors of the vision tower and projector
    const auto below =
        ours ? std::string_view(name).substr(prefix.backbone.size()) : std::string_view(name);
    if (!is_known_extra(model, below)) surplus.push_back(name);
  }
  if (!surplus.empty())
    fail_with_names(where, "unexpected tensor", surplus,
                    "config.json describes a model without it, so its results would be wrong");
}

}  // namespace

std::string embedding_name(const ModelConfig& model) {
  return model.names.embedding + ".weight";
}

std::string expert_name(const std::string& name, std::int64_t expert) {
  const auto place = name.find("{}");
  if (place == std::string::npos) return name;
  return fmt::format("{}{}{}", name.substr(0, place), expert, name.substr(place + 2));
}

bool holds_all_experts(const std::string& name) {
  return name.find("{}") == std::string::npos;
}

std::vector<TensorSpec> tensor_table(const ModelConfig& model) {
  static const ExpertNames kNone;
  return tensor_table(model, model.names.experts.empty() ? kNone : model.names.experts.front());
}

std::vector<TensorSpec> tensor_table(const ModelConfig& model, const ExpertNames& experts) {
  return TableBuilder(model, experts).build();
}

TensorPrefix check_names(const ModelConfig& model, const std::vector<std::string>& names,
                         const std::string& where) {
  const std::set<std::string> present(names.begin(), names.end());
  auto prefix = find_prefix(model, present, where);
  prefix.experts = find_experts(model, present, prefix.backbone);
  check_missing(model, present, prefix, where);
  check_surplus(model, present, prefix, where);
  return prefix;
}

std::int64_t parameter_count(const ModelConfig& model) {
  return translate_exceptions([&] {
    std::int64_t count = model.tied ? 0 : model.vocab_size * model.d_model;
    for (const auto& spec : tensor_table(model)) count += spec.shape.count();
    return count;
  });
}

}  // namespace qkscope
